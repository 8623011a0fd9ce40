"""Asking for more than a step allows is an error before anything runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).with_name("verbs_by_type.py")


def test_a_type_checker_refuses_just_the_calls_that_a_site_would_refuse():
    expected = {
        i for i, line in enumerate(PROGRAMS.read_text().splitlines()) if line.endswith("# refuse")
    }
    command = [sys.executable, "-m", "basedpyright", "--outputjson", str(PROGRAMS)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = {d["range"]["start"]["line"] for d in found if d["severity"] == "error"}
    assert errors == expected, "\n".join(d["message"] for d in found)
