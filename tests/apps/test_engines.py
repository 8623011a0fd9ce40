"""Engines are loaded by those who use one, and a missing one is one line."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import in_process
from command_line import without_times

STUDY = {
    "study": "sim",
    "task": "survival",
    "seed": 5,
    "data": {
        "source": "sample:gbsg2",
        "outcome": {"time": "time", "event": "cens"},
        "sites": {"split": "iid", "n": 3},
    },
    "scenarios": [{"split": "iid"}, {"split": "by-outcome"}],
    "preprocess": {"impute": "median", "scale": "minmax"},
    "arms": [
        {"method": "deepcox", "strategy": "fedavg", "rounds": 3, "internal_epochs": 2},
        {"method": "cox", "scale": "none"},
    ],
    "bounds": {"isolated": {"rounds": 2}, "centralised": {"rounds": 2}},
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}
#: A stateful method, so that nodes keep what they remember on the disk.
TUNED = {
    "study": "tuned",
    "task": "regression",
    "seed": 1,
    "data": {
        "source": "sample:diabetes",
        "outcome": {"y": "target"},
        "sites": {"split": "iid", "n": 3},
    },
    "arms": [{"method": "ridge", "solver": "admm", "penalty": 0.1, "scale": "standard"}],
    "bounds": [],
    "evaluate": {"test_fraction": 0.25, "repeats": 2},
}

#: Imports the package, shows its help and runs a study; prints after each which engines are there.
_LOADED = """
import sys
def engines():
    here = {name.split('.')[0] for name, module in sys.modules.items() if module is not None}
    print(sorted({'nvflare', 'flwr', 'ray'} & here), file=sys.stderr)
import fedcohort
engines()
from fedcohort.apps.cli import main
for words in ['--help'], ['run', 'tuned.yaml', '--out', 'out', '--workers', '1']:
    sys.argv = ['fedcohort', *words]
    try:
        main()
    except SystemExit as left:
        assert not left.code, left
    engines()
"""


def command(folder: Path, *words: str, without: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """Run a command, with some packages as if they were not installed."""
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        for name in without:
            patch.setitem(sys.modules, name, None)
        return in_process.command(*words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.yaml").write_text(json.dumps(STUDY))  # JSON is YAML
    (tmp_path / "tuned.yaml").write_text(json.dumps(TUNED))
    return tmp_path


def test_neither_engine_is_loaded_by_the_package_its_help_or_a_local_run(folder):
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("[")] == ["[]"] * 3


@pytest.mark.parametrize(
    ("runtime", "gone", "title", "extra"),
    [
        ("flare", "nvflare", "NVIDIA FLARE", "flare"),
        ("flower", "flwr", "Flower", "flower"),
        ("flower-sim", "flwr", "Flower", "flower"),
    ],
)
def test_a_runtime_whose_engine_is_not_installed_is_one_line(folder, runtime, gone, title, extra):
    network = [] if runtime == "flower-sim" else ["--network", "kit"]
    code, _, err = command(
        folder, "run", "study.yaml", "--runtime", runtime, *network, without=(gone,)
    )
    assert code == 2
    assert err == (
        f"fedcohort: --runtime {runtime} needs {title}: pip install 'fedcohort[{extra}]'.\n"
    )
    assert sorted(p.name for p in folder.iterdir()) == ["study.yaml", "tuned.yaml"]


@pytest.mark.parametrize(("engine", "gone"), [("flare", "nvflare"), ("flower", "flwr")])
def test_kits_of_one_engine_meet_one_line_with_the_other(tmp_path, engine, gone):
    from fedcohort.network.kits.make import Network

    network = Network.new(tmp_path / "net", sites=("a",), engine=engine)
    (tmp_path / "study.yaml").write_text(json.dumps(STUDY))
    (tmp_path / "node.toml").write_text(
        '[data]\nsource = "x.csv"\n[policy]\nmethods = "all"\ncolumns = "all"\nsubmitters = "all"\n'
    )
    other = {"flare": "flower", "flower": "flare"}[engine]
    if find_spec({"flare": "flwr", "flower": "nvflare"}[engine]):
        code, _, err = command(
            tmp_path, "run", "study.yaml", "--runtime", other,
            "--network", str(network.kit("lead")),
        )  # fmt: skip
        assert code == 2
        assert err.endswith(f"the network net uses {engine}; say --runtime {engine}.\n")
        assert err.count("\n") == 1
    for words in (
        ["coordinator", "start", str(network.kit("coordinator"))],
        ["node", "start", str(network.kit("a")), "--config", "node.toml"],
    ):
        code, _, err = command(tmp_path, *words, without=(gone,))
        assert code == 2
        assert err.endswith(f": pip install 'fedcohort[{engine}]'.\n")
        assert err.count("\n") == 1


def same(one: Path, other: Path) -> None:
    """Two runs left the same files, but for seconds and the command."""
    files = [without_times(out) for out in (one, other)]
    for found in files:
        results = json.loads(found["results.json"])
        results.pop("command")
        found["results.json"] = json.dumps(results).encode()
    assert files[0].keys() == files[1].keys()
    for name, body in files[0].items():
        assert files[1][name] == body, name


@pytest.mark.parametrize("study", ["tuned", "study"])
def test_a_simulated_study_over_flowers_messages_leaves_the_files_of_the_local_run(folder, study):
    pytest.importorskip("flwr")
    words = ["run", f"{study}.yaml", "--workers", "1"]
    for more in ("--out", "local"), ("--out", "flower-sim", "--runtime", "flower-sim"):
        code, _, err = command(folder, *words, *more)
        assert code == 0, err
    assert "flwr" in sys.modules
    same(folder / "local", folder / "flower-sim")
    told = json.loads((folder / "flower-sim" / "results.json").read_text())["command"]
    assert told.endswith("--runtime flower-sim")


def test_a_simulation_killed_on_its_way_resumes_to_the_same_files(folder, monkeypatch):
    pytest.importorskip("flwr")
    from fedcohort.protocol.errors import StudyError
    from fedcohort.study.study import Study

    study = Study.from_file(folder / "tuned.yaml")
    study.run(folder / "whole")

    class Killed(BaseException):
        """Stands for the end of the process."""

    from fedcohort.runtime import remote

    asked = remote.RemoteTransport.ask
    left = [30]

    def ask(self, call, to):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return asked(self, call, to)

    monkeypatch.setattr(remote.RemoteTransport, "ask", ask)
    with pytest.raises(Killed):
        study.run(folder / "cut", runtime="flower-sim")
    monkeypatch.undo()
    kept = list((folder / "cut").rglob("*.sqlite"))
    assert kept  # the sites' states are what it goes on from
    with pytest.raises(StudyError, match="the runtime"):
        study.run(folder / "cut", resume=True)
    study.run(folder / "cut", runtime="flower-sim", resume=True)
    same(folder / "whole", folder / "cut")
