"""Every command that the pages about networks name exists, with the options that they give it."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import typer

from doc_pages import DOCS
from fedcohort.apps.cli import app
from fedcohort.network.state import policy

PAGES = [
    *((DOCS / f"network-{name}.md") for name in ("tutorial", "it", "operations")),
    DOCS.parent / "README.md",
]


def commands(page: str) -> list[list[str]]:
    """Return the words of each command of ours in blocks, unit files and inline code."""
    code = re.findall(r"^```\w*[^\n]*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    code += re.findall(r"`(fedcohort [^`\n]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    found = []
    for line in "\n".join(code).splitlines():
        said = re.search(r"(?:^|\$ |=/opt/fedcohort/bin/)(fedcohort .+)$", line)
        if said and ("network" in said[1] or "node " in said[1] or "coordinator" in said[1]):
            found.append(shlex.split(said[1], comments=True)[1:])
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_command_that_a_page_names_exists(path):
    found = commands(path.read_text(encoding="utf-8"))
    assert found
    made = typer.main.get_command(app)
    for words in found:
        command, rest = made, list(words)
        while isinstance(command, click.Group):
            assert rest[0] in command.commands, words
            command = command.commands[rest.pop(0)]
        known = {name for p in command.params for name in p.opts}
        given = {word for word in rest if word.startswith("--")}
        assert given <= known, words


def test_the_coordinators_unit_file_differs_from_the_nodes_in_what_it_runs_alone():
    page = (DOCS / "network-operations.md").read_text(encoding="utf-8")
    node, hub = re.findall(r"^```ini [^\n]*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    only = set(hub.splitlines()) - set(node.splitlines())
    keys = ("Description=", "ExecStart=", "ReadWritePaths=", "MemoryMax=")
    assert all(line.startswith(keys) for line in only), only


def test_every_key_of_a_node_s_configuration_is_in_the_table():
    page = (DOCS / "network-operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`(?:data|policy)\.[^|]+) \|", page, re.MULTILINE)
    listed = set(re.findall(r"\.(\w+)", " ".join(rows)))
    assert listed == {*policy.DATA, *policy.POLICY, *policy.BUDGET}
