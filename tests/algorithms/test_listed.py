"""Every installed method of this package has its pages and its places in the tests.

The failure names the file and what to add to it. Other lists follow from the registry.
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fedcohort.protocol import SettingError, registry
from queries import REGRESSIONS

ROOT = Path(__file__).parents[2]
#: The methods of this package, without those of others that are installed.
OURS = sorted(
    e.name for e in entry_points(group=registry.GROUP) if e.value.startswith("fedcohort.")
)


def pages(name: str) -> list[str]:
    """Return what the documentation lacks of a method."""
    lacking: list[str] = []
    page = ROOT / "docs" / "methods" / f"{name}.md"
    text = page.read_text("utf-8") if page.exists() else ""
    if not text:
        lacking.append(f"docs/methods/{name}.md: write the page (examples/method/page.md)")
    elif not re.search(r"reveal|leaves a site", text):
        lacking.append(f"docs/methods/{name}.md: add the section '## What is revealed'")
    known = [f.name for f in registry.find(name).fields]
    if (
        text
        and not re.search(r"\]\([\w/.-]+\.md", text)
        and (unsaid := [one for one in known if f"`{one}`" not in text])
    ):
        lacking.append(f"docs/methods/{name}.md: say what {', '.join(unsaid)} set")
    if f"(methods/{name}.md)" not in (ROOT / "docs" / "which-method.md").read_text("utf-8"):
        lacking.append(f"docs/which-method.md: add a row with [`{name}`](methods/{name}.md)")
    if f"(methods/{name}.md)" not in (ROOT / "docs" / "index.md").read_text("utf-8"):
        lacking.append(f"docs/index.md: add [`{name}`](methods/{name}.md)")
    if f"`{name}`" not in (ROOT / "docs" / "disclosure.md").read_text("utf-8"):
        lacking.append(f"docs/disclosure.md: add what `{name}` reveals to the table of parts")
    return lacking


def in_tests(name: str) -> list[str]:
    """Return the lists of tests that lack a method of exact sums."""
    entry = registry.find(name)
    if entry.unguarded or "user" in {f.name for f in entry.fields}:
        return []
    asked = {method for methods in REGRESSIONS.values() for method in methods}
    return [] if name in asked else [f"tests/queries.py: add {name!r} to REGRESSIONS"]


@pytest.mark.parametrize("name", OURS)
def test_a_method_has_its_page_its_rows_and_its_place_in_the_attack(name):
    lacking = [*pages(name), *in_tests(name)]
    assert not lacking, f"method {name!r} is not listed everywhere:\n" + "\n".join(lacking)


def test_a_page_of_a_method_is_of_one_that_is_installed():
    shared = {"admm"}  # a second solver of several methods
    written = {page.stem for page in (ROOT / "docs" / "methods").glob("*.md")}
    assert written - shared == set(OURS)


@pytest.mark.parametrize(
    ("theirs", "boosting", "forest"),
    [
        ("n_estimators", "rounds", "trees"), ("eta", "learning_rate", ""),
        ("reg_lambda", "l2", ""), ("reg_alpha", "l1", ""), ("max_depth", "", "depth"),
        ("min_child_weight", "", "leaf"), ("subsample", "", "share"),
        ("colsample_bytree", "colsample", "candidates"),
        ("max_features", "colsample", "candidates"),
        ("min_samples_leaf", "min_child_weight", "leaf"),
    ],
)  # fmt: skip
def test_names_of_xgboost_and_scikit_learn_are_answered_with_ours(theirs, boosting, forest):
    for name, ours in (("boosting", boosting), ("forest", forest)):
        if ours:
            said = f"method '{name}' has no setting '{theirs}'; did you mean '{ours}'?"
            with pytest.raises(SettingError, match=re.escape(said)):
                registry.find(name).configure({theirs: 1})


def test_a_name_of_other_programs_is_no_setting_and_means_one_alone():
    for name in OURS:
        fields = registry.find(name).fields
        every = [n for f in fields for n in f.metadata.get("elsewhere", ())]
        assert len(every) == len({*every} - {f.name for f in fields}), name
