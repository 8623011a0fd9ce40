"""docs/dictionary.md does what it says: its files are written, its commands and its code run."""

from __future__ import annotations

import pytest

from doc_pages import DOCS, agree, blocks, follow
from fedcohort.data.variable import TYPES, Variable

PAGE = (DOCS / "dictionary.md").read_text(encoding="utf-8")


def test_files_commands_and_code_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks(PAGE):
        if block.name:  # a file may stand below the command that reads it
            (tmp_path / block.name).write_text(block.body, encoding="utf-8")
    met = []
    follow(PAGE, lambda *step: met.append(step))
    assert len(met) == 4
    for command, shown, found in met:
        assert agree(shown, found), f"$ {command}\n{found}"
    for block in blocks(PAGE):
        if block.kind == "python":
            exec(compile(block.body, "dictionary.md", "exec"), {})


@pytest.mark.parametrize("key", [*Variable.__dataclass_fields__, *TYPES])
def test_the_page_explains_every_key_and_type(key):
    assert key == "name" or f"`{key}`" in PAGE
