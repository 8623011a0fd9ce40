"""250 random corruptions of a table: never a traceback, and never a cell in any output."""

from __future__ import annotations

import random
import re
import warnings
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcohort as fc
from fedcohort.apps import checking
from fedcohort.data.read.dictionaries import read_dictionary
from table_faults import CELL, DICTIONARY, HEADER, STUDY, broken_frame, broken_grid, csv_bytes, grid

OUTCOME = fc.Survival("time", "event")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the dictionary, and a study with it and one without."""
    made = tmp_path_factory.mktemp("any")
    (made / "d.yaml").write_text(DICTIONARY)
    (made / "known.yaml").write_text(STUDY % ("t.csv", "dictionary: d.yaml, "))
    (made / "drafted.yaml").write_text(STUDY % ("t.csv", ""))
    return made


#: A column by name and position; a nearly right one, which is told always (`data.check.header`);
#: a site's name as text, and as JSON, has it.
NAMED = r"'[^']*'\s+\(at\s+position\s+\d+\)"
NEAR = r"Did\s+you\s+mean\s+'[^']*'"
NAME = (
    r"""site '(?:[^'\\]|\\.)*'|site "(?:[^"\\]|\\.)*"|"site": "(?:[^"\\]|\\.)*\""""
    r"""|site \\"(?:[^"\\]|\\[^"])*\\\""""  # in quotes within JSON
)


def refusal(call) -> str | None:
    """Return what a call says when it refuses its input, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "sites left out: ")  # names of sites may be said
        try:
            call()
        except fc.FedcohortError as error:
            assert len(str(error).splitlines()) == 1
            return str(error)
    return None


def assert_no_cell(text: str | None) -> None:
    """Look for cells, but for the name of a site and of a column that is nearly right."""
    told = re.sub(f"{NAME}|{NEAR}", "", text or "")
    assert CELL.search(told) is None, text


def check(folder: Path) -> tuple[int, str]:
    """Return how many errors there are in t.csv, and all that is said of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = [str(folder / "t.csv")]
        report = checking.check(table, folder / "d.yaml", sites="hospital")
    return report.counts[0], report.to_text() + report.to_json()


@pytest.mark.parametrize("examples", [25, 250])
def test_whatever_comes_is_taken_or_refused_without_a_word_of_it(folder, examples):
    @settings(max_examples=examples)
    @given(seed=st.integers(0, 2**32), faults=st.integers(1, 4))
    def holds(seed, faults):
        rng = random.Random(seed)
        table = broken_grid(rng, faults)
        (folder / "t.csv").write_bytes(csv_bytes(table, rng))
        wrong, printed = check(folder)
        known = refusal(lambda: fc.Study.from_file(folder / "known.yaml"))
        drafted = refusal(lambda: fc.Study.from_file(folder / "drafted.yaml"))
        frame = broken_frame(table, rng)
        kept = frame.copy()
        given = read_dictionary(folder / "d.yaml") if rng.random() < 0.7 else None
        about = {"sites": "hospital", "outcome": OUTCOME, "dictionary": given}
        memory = refusal(lambda: fc.simulate(frame, **about))
        first = table[0] if table else []
        headed = 2 * sum(name in first for name in HEADER) >= len(HEADER)  # then it names columns
        for said in (printed, known, memory if given else None):
            assert_no_cell(re.sub(NAMED, "", said or "") if headed else said)
        # the first line is all that names columns
        for said in (drafted, None if given else memory):
            assert_no_cell(re.sub(r"column '[^']*'", "", said or ""))
        if wrong and known is None:  # all of them are at sites that the study leaves out
            assert fc.Study.from_file(folder / "known.yaml").table.fates, "it ran with errors"
        pd.testing.assert_frame_equal(frame, kept)

    holds()


def test_the_table_itself_is_sound(folder):
    (folder / "t.csv").write_bytes("\n".join(map(",".join, grid(40))).encode() + b"\n")
    assert check(folder)[0] == 0
    assert refusal(lambda: fc.Study.from_file(folder / "known.yaml")) is None
