"""What must not enter the repository is found where it was planted, and prose is left alone."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("scan", ROOT / "tools" / "scan.py")
assert _spec is not None
assert _spec.loader is not None
scan = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scan)

# Planted text is put together here, so that the scan of this repository does not find it.
SLASH, COLON = "/", ":"
HOST = f"https{COLON}//pypi{'.'}org{SLASH}simple"


def planted(folder: Path, name: str, content: str | bytes) -> tuple[int, Any]:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return scan.main(folder)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import pickle", "import of pickle"),
        ("import os, pickle as p", "import of pickle"),
        ("from joblib import load", "import of joblib.load"),
        ("import cloudpickle.sub", "import of cloudpickle.sub"),
        ("from torch import load", "import of torch.load"),
        ("from yaml import load", "import of yaml.load"),
        ("import importlib\nimportlib.import_module('pickle')", "import of pickle"),
        ("__import__('dill')", "import of dill"),
        ("import torch\ntorch.load('m')", "call of torch.load"),
        ("eval('1')", "call of eval"),
        ("def f():\n    exec('x = 1')", "call of exec"),
        ("import yaml\nyaml.load('a', Loader=None)", "call of yaml.load"),
        ("import numpy as np\nnp.load('x', allow_pickle=True)", "allow_pickle"),
        ("import numpy as np\nFLAG = 1\nnp.load('x', allow_pickle=FLAG)", "allow_pickle"),
    ],
)
def test_code_that_runs_what_a_file_says_is_found_in_src(tmp_path, capsys, code, what):
    assert planted(tmp_path, "src/p/m.py", code) == 1
    assert f"src/p/m.py:{len(code.splitlines())}: {what}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "code",
    [
        '"""No pickle, no eval(), no torch.load(, no yaml.load( here."""',
        "# import pickle",
        "import yaml\nyaml.safe_load('a')",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "class M:\n    def eval(self): ...\nM().eval()",
        "import json\njson.load(None)",
    ],
)
def test_prose_and_safe_code_pass(tmp_path, code):
    assert planted(tmp_path, "src/p/m.py", code) == 0


def test_tests_may_use_what_the_package_may_not(tmp_path):
    assert planted(tmp_path, "tests/test_m.py", "import pickle") == 0


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"index = {HOST}", "package index"),
        ("-" + "-index-url x", "package index"),
        ("-" + "-trusted-host x", "package index"),
        (f"data: {SLASH}work/shared/x.csv", "one machine"),
        (f"open('{SLASH}home/jane/x')", "one machine"),
        (f"see ({SLASH}root/.cache)", "one machine"),
    ],
)
def test_hosts_and_paths_of_one_machine_are_found_in_any_file(tmp_path, capsys, text, what):
    assert planted(tmp_path, "docs/a.md", f"first\n{text}\n") == 1
    assert f"docs/a.md:2: a{'ddress of a ' if 'index' in what else 'bsolute path of '}{what}" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "text",
    ["https://doi.org/10.1/x", "https://example.org/home/page", "src/work/x", "$HOME/work/x"],
)
def test_ordinary_links_and_paths_pass(tmp_path, text):
    assert planted(tmp_path, "docs/a.md", text) == 0


def test_large_files_weights_and_notebooks_with_output_are_found(tmp_path, capsys):
    cell = {"cell_type": "code", "outputs": [{"text": "4711"}]}
    assert planted(tmp_path, "big.csv", b"x" * 513_000) == 1
    assert planted(tmp_path, "model.pt", b"\xff\xfe") == 1
    assert planted(tmp_path, "n.ipynb", json.dumps({"cells": [cell]})) == 1
    out = capsys.readouterr().out
    assert "big.csv: 500 KB" in out
    assert "model.pt: weights" in out
    assert "n.ipynb: notebook with output" in out


def test_ignored_files_are_not_read(tmp_path):
    planted(tmp_path, ".gitignore", "local/\n")
    assert planted(tmp_path, "local/a.md", f"{SLASH}work/x") == 0


def test_this_repository_passes():
    assert scan.main(ROOT) == 0
