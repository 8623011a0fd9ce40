"""A process that is killed outright leaves what another one needs to finish its run."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(__file__).with_name("killed.py")
TESTS = Path(__file__).parents[1]


def start(folder: Path) -> subprocess.Popen[str]:
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r}); sys.argv = ['', {str(folder)!r}]; "
    code += f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    return process


def test_a_run_killed_at_random_moments_ends_with_the_same_bytes_and_ledger(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    began = time.perf_counter()
    with start(whole) as process:
        assert process.wait() == 0
    seconds = time.perf_counter() - began
    rng, killed = random.Random(0), 0
    for _ in range(3):
        with start(cut) as process:
            time.sleep(rng.uniform(0.02, 0.25) * seconds)
            killed += process.poll() is None
            process.kill()
    with start(cut) as process:
        assert process.wait() == 0
    assert killed
    assert (cut / "result").read_bytes() == (whole / "result").read_bytes()
