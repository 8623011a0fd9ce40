"""docs/dictionary.md does what it says: its files are written, its commands and its code run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from fedcohort.apps import cli
from fedcohort.data.variable import TYPES, Variable

PAGE = (Path(__file__).parents[2] / "docs" / "dictionary.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def said(command, capsys):
    """Return what a command of the page prints, as main() would."""
    try:
        cli.app(command.split()[2:], standalone_mode=False)
    except typer.Exit:
        pass
    except Exception as error:
        cli._explain(error)
    out = capsys.readouterr()
    return out.out + out.err


def test_files_commands_and_code_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _, name, body in BLOCKS:
        if name:
            Path(name).write_text(body, encoding="utf-8")
    consoles = [body for kind, _, body in BLOCKS if kind == "console"]
    assert len(consoles) == 2
    for part in re.split(r"^(?=\$ )", "".join(consoles), flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        assert said(command, capsys) == expected
    for code in (body for kind, _, body in BLOCKS if kind == "python"):
        exec(compile(code, "dictionary.md", "exec"), {})


@pytest.mark.parametrize("key", [*Variable.__dataclass_fields__, *TYPES])
def test_the_page_explains_every_key_and_type(key):
    assert key == "name" or f"`{key}`" in PAGE
