"""Stand-ins for Slurm's commands, on one machine: a job is a process, with its id for the job's.

make(folder)    # writes sbatch, srun, sacct and scancel there
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

COMMANDS = ("sbatch", "srun", "sacct", "scancel")


def make(folder: Path) -> None:
    """Write the commands as programs into a folder."""
    folder.mkdir()
    for name in COMMANDS:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        program.chmod(0o755)


def sbatch(script: str) -> None:
    """Start a job: a shell that runs the script in its own group, and then notes its end."""
    node = {"NTASKS": 1, "JOB_NUM_NODES": 1, "NODEID": 0, "JOB_NODELIST": "here", "PROCID": 0}
    more = {f"SLURM_{name}": str(value) for name, value in (node | {"LOCALID": 0}).items()}
    job = subprocess.Popen(
        ["sh", "-c", 'SLURM_JOB_ID=$$ exec bash "$0"', script], env={**os.environ, **more},
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print(f"Submitted batch job {job.pid}")


def srun(*words: str) -> None:
    """Become the job's program, with its output in the files that the options name."""
    files = {words[i]: Path(words[i + 1]) for i in (1, 3)}
    job = os.environ["SLURM_JOB_ID"]
    for stream, option in ((1, "--output"), (2, "--error")):
        path = str(files[option]).replace("%j", job).replace("%t", "0")
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    os.execvp(words[5], words[5:])


def sacct(*words: str) -> None:
    """Print the state of jobs."""
    print("JobID|State|NodeList")
    for job in [words[i + 1] for i, word in enumerate(words) if word == "-j"]:
        print(f"{job}|{'RUNNING' if alive(int(job)) else 'COMPLETED'}|here")


def scancel(job: str, *more: str) -> None:
    """End a job."""
    if alive(int(job)):
        os.killpg(int(job), signal.SIGTERM)


def alive(process: int) -> bool:
    """Return whether a process works: it exists, and is no zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
