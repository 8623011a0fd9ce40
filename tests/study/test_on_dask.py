"""A study's fits as tasks of a Dask scheduler: the files of one machine, whatever ends."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import fedcohort as fc
import in_process
import slurm_standin
from command_line import COMMAND, RUN, interruptible, without_times
from dask_cluster import dask
from fedcohort.protocol import FedcohortError, NotSupported

LONG = """\
study: long
data: {source: sample:gbsg2, sites: {split: iid, n: 3}}
arms: [{method: deepcox, rounds: 600, internal_epochs: 5}]
bounds: []
final: false
evaluate: {repeats: 2, draws: 10, metrics: [c_index]}
"""
SHORT = LONG.replace("long", "short").replace("600", "5")
TUNED = """\
study: tuned
data: {source: sample:gbsg2, sites: {split: by-outcome, n: 3}}
arms: [{method: cox, scale: standard}, {method: deepcox, rounds: 5}]
tune: {by: row-kfold, trials: 2, space: {l2: [0.001, 1.0, log]}}
bounds: [isolated, centralised]
evaluate: {repeats: 2, draws: 10, metrics: [c_index]}
"""


def run(folder: Path, text: str, out: str = "out", **more: object) -> dict[str, bytes]:
    """Run a study in a folder of its own; return its files."""
    folder.mkdir(exist_ok=True)
    (folder / "s.yaml").write_text(text)
    with contextlib.chdir(folder):
        fc.Study.from_file("s.yaml").run(out, **more)  # pyright: ignore[reportArgumentType]
    return without_times(folder / out)


@contextlib.contextmanager
def watched(folder: Path, at_work: Callable[[set[str]], None]) -> Iterator[None]:
    """Tell of all attempts that had a journal until now, again and again, until the block ends."""
    ended, seen = threading.Event(), set[str]()

    def watch() -> None:
        while not ended.wait(0.01):
            seen.update(path.parts[-5] for path in journals(folder))
            at_work(seen)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def failure(folder: Path, address: str) -> str:
    """Return the error of a run on a cluster."""
    with pytest.raises(FedcohortError) as said:
        run(folder, LONG, cluster=address)
    return str(said.value)


def journals(folder: Path) -> list[Path]:
    return list((folder / "out" / ".work" / "attempts").glob("*/.work/scratch/*/*.journal"))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return run(tmp_path_factory.mktemp("long"), LONG)


def test_every_kind_of_piece_on_two_workers_leaves_the_files_of_one_machine(tmp_path):
    with dask(tmp_path) as there:
        found = run(tmp_path / "there", TUNED, cluster=there.address)
    assert found == run(tmp_path / "here", TUNED)


@pytest.mark.parametrize(("workers", "deaths"), [(2, 1), (1, 2)])
def test_the_task_of_a_killed_worker_runs_again(tmp_path, long, workers, deaths):
    began, killed = set[str](), list[int]()

    def at_work(seen: set[str]) -> None:
        began.update(seen)
        if len(killed) < deaths and len(seen) == workers + len(killed):
            there.kill(len(killed))
            killed.append(len(killed))
            there.add()

    with dask(tmp_path, workers) as there, watched(tmp_path / "it", at_work):
        found = run(tmp_path / "it", LONG, cluster=there.address)
    assert found == long
    assert len(killed) == deaths
    assert len(began) == 2 + deaths


def test_a_fit_that_ends_every_worker_ends_the_run_which_can_go_on_here(tmp_path, long):
    """Here the scheduler gives up at the first lost worker."""

    def at_work(seen: set[str]) -> None:
        if seen and there.workers[0].poll() is None:
            there.kill(0)

    settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with dask(tmp_path, 1, environment=settings) as there, watched(tmp_path / "it", at_work):
        said = failure(tmp_path / "it", there.address)
    assert "workers ended one after the other while they did fit-s00-r0000-a00" in said
    assert "--resume" in said
    assert "\n" not in said
    assert run(tmp_path / "it", LONG, resume=True) == long


def test_where_the_scheduler_ends_the_run_says_so_and_can_go_on(tmp_path, long):
    def at_work(seen: set[str]) -> None:
        if seen:
            there.scheduler.kill()

    with dask(tmp_path) as there, watched(tmp_path / "it", at_work):
        said = failure(tmp_path / "it", there.address)
    assert "has ended" in said
    assert "--resume" in said
    with dask(tmp_path) as there:
        assert run(tmp_path / "it", LONG, cluster=there.address, resume=True) == long


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_or_a_kill_ends_the_run_and_it_can_go_on_with_the_same_workers(tmp_path, long, sent):
    (tmp_path / "s.yaml").write_text(LONG)
    with dask(tmp_path) as there:
        process = subprocess.Popen(
            [*RUN, "--cluster", there.address], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
            preexec_fn=interruptible,
        )  # fmt: skip
        while len(journals(tmp_path)) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(sent)
        _, said = process.communicate(timeout=30)
        assert process.returncode == (130 if sent == signal.SIGINT else -sent)
        assert sent == signal.SIGKILL or "--resume" in said.splitlines()[-1]
        assert "Traceback" not in said
        with contextlib.chdir(tmp_path):
            code, _, said = in_process.command(
                *RUN[len(COMMAND) :], "--resume", "--cluster", there.address
            )
        assert code == 0, said
    found = without_times(tmp_path / "out")
    assert {k: v for k, v in found.items() if k != "results.json"} == {
        k: v for k, v in long.items() if k != "results.json"
    }


def test_two_studies_at_once_on_one_scheduler_leave_their_own_files(tmp_path, long):
    found: dict[str, dict[str, bytes]] = {}
    with dask(tmp_path) as there:
        address = there.address
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "s.yaml").write_text(LONG)
        both = [
            subprocess.Popen([*RUN, "--cluster", address], cwd=tmp_path / name, stderr=-1)
            for name in ("one", "two")
        ]
        said = [process.communicate(timeout=200)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    found = {name: without_times(tmp_path / name / "out") for name in ("one", "two")}
    assert found["one"] == found["two"]
    assert found["one"]["ledger.jsonl"] == long["ledger.jsonl"]


def test_without_a_worker_the_run_says_so_and_waits(tmp_path, caplog):
    with dask(tmp_path, 0) as there:
        later = threading.Timer(2.0, there.add)
        later.start()
        run(tmp_path / "it", SHORT, cluster=there.address)
        later.join()
    assert f"no worker is connected to {there.address}; waiting" in caplog.text


def test_a_worker_of_several_threads_is_refused(tmp_path):
    with dask(tmp_path, 0) as there:
        there.add("--nthreads", "3")
        with pytest.raises(NotSupported, match="would do 3 fits in one process"):
            run(tmp_path / "it", SHORT, cluster=there.address)


def test_certificates_protect_what_goes_to_a_scheduler(tmp_path):
    """Without the certificates nobody gets in; with them the run is as on one machine."""
    settings = certificates(tmp_path / "tls")
    secure = ("--protocol", "tls")
    with dask(tmp_path, 2, *secure, environment=settings) as there:
        assert there.address.startswith("tls://")
        (tmp_path / "s.yaml").write_text(SHORT)
        words = [*RUN, "--cluster", there.address]
        without = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert without.returncode == 1
        assert "no Dask scheduler answers there" in without.stderr
        assert "certificates" in without.stderr
        with_ = subprocess.run(
            words, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, check=False
        )
    assert with_.returncode == 0, with_.stderr
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "s.yaml").write_text(SHORT)
    with contextlib.chdir(tmp_path / "here"):
        in_process.command(*RUN[len(COMMAND) :])
    assert without_times(tmp_path / "out") == without_times(tmp_path / "here" / "out")


def certificates(folder: Path) -> dict[str, str]:
    """Write a certificate that all parties share; return Dask's settings for it."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    tls, found = "DASK_DISTRIBUTED__COMM__TLS__", {}
    found[f"{tls}CA_FILE"] = str(folder / "certificate.pem")
    for party in ("SCHEDULER", "WORKER", "CLIENT"):
        found[f"{tls}{party}__CERT"] = str(folder / "certificate.pem")
        found[f"{tls}{party}__KEY"] = str(folder / "key.pem")
    return found


@pytest.mark.parametrize("cluster", ["slurm", "slurm-local"])
def test_jobs_leave_the_files_of_one_machine_also_if_one_is_killed(
    tmp_path, long, monkeypatch, cluster
):
    """Processes of this machine take the place of Slurm's jobs, or of its commands too."""
    jobs = tmp_path / "it" / "out" / ".work" / "jobs"
    began, killed = set[str](), list[int]()

    def at_work(seen: set[str]) -> None:
        began.update(seen)
        if len(seen) == 2 and not killed:
            killed.append(int(next(jobs.glob("*_log.err")).name.split("_")[0]))
            (os.killpg if cluster == "slurm" else os.kill)(killed[0], signal.SIGKILL)

    slurm_standin.make(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with watched(tmp_path / "it", at_work):
        found = run(tmp_path / "it", LONG, cluster=cluster, workers=2)
    assert len(began) == 3
    assert killed
    assert found == long


def test_what_sbatch_refuses_is_one_line(tmp_path, monkeypatch):
    slurm_standin.make(tmp_path / "bin")
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho 'invalid partition' >&2; exit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(FedcohortError, match="sbatch refused a job") as said:
        run(tmp_path / "it", SHORT, cluster="slurm")
    assert "invalid partition" in str(said.value)
    assert "\n" not in str(said.value)
