"""Examples leave their files in runs/, which git ignores, and not where they are called."""

import re
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_saves_nothing_beside_itself(path):
    text = path.read_text("utf-8")
    assert not re.findall(r"""(?:save|to_csv|write_text|open)\(["'](?!runs/)[^"']*["']""", text)
