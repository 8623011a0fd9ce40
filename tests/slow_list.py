"""The tests that `make test` leaves out: `tests/slow.txt`, one a line, and how they are marked.

A line is `tests | seconds | what stays in make test`. Paths are relative to this folder.

tests
    A file, `file::function` (with all its parameters), or `file::function[parameters]`, with `*`
    for anything. ` ! [parameters]` keeps some of them in `make test`.
seconds
    Processor seconds of all of them together, on a quiet core; elapsed ones where they wait.
what stays
    Tests that check the claim in `make test`, in the same form, with `; ` between them. `::name`
    is in the same file, and `[parameters]` of the same function. Left out, it is what ` ! ` keeps.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
LIST = TESTS / "slow.txt"

#: Tests that read a report's page, as patterns of `fnmatch`. Of others none is written in
#: `make test`, where it takes a third of a small study's time: who reads one fails, as it is
#: missing. `make test-pages` writes them with all their drawings.
PAGES = (
    *(f"{folder}/*" for folder in ("benchmarks", "docs", "report")),
    "apps/test_check_fits.py", "apps/test_cli.py", "audit/test_epsilon.py",
    "network/test_lead.py::test_a_run_leaves_the_local_files_and_a_report*", "test_examples.py",
    "study/deployed/test_multinomial.py::test_the_report*",
    "study/deployed/test_twin.py::test_what_the_network_lacks*",
    "study/test_bounds_and_entries.py::test_a_study_of_late_entries*",
    "study/test_classification_study.py::test_the_study_has_a_report*",
    "study/test_cluster_umap.py::*the_page_says*",
    "study/test_cluster_umap.py::test_off_by_default*",
    "study/test_clustering_study.py::test_the_report_is_written*",
    "study/test_cohort.py::test_what_left_for_the_description*",
    "study/test_free_parameters.py::test_a_study_says_in_its_results_and_report*",
    "study/test_imputation_study.py::test_a_study_has_every_metric*",
    "study/test_latent_study.py::test_the_report_and_the_card*",
    "study/test_synthesis_study.py::test_results_and_report*",
    "study/test_missing.py::test_a_simulated_study_names*",
    "study/test_missing.py::test_a_study_in_which_all_answered*",
    "study/test_private_training.py::*of_fedavg_tells*",
    "study/test_private_warnings.py::*its_results_and_its_report*",
    "study/test_several_study.py::test_a_report*", "study/test_several_study.py::test_the_report*",
    "study/test_site_rule.py::test_who_is_left_out_is_told*",
    "study/test_tables.py::*full_disk*",
    "study/test_units.py::*its_report_says_so*",
    "study/test_views.py::test_a_study_with_views_runs*",
)  # fmt: skip


#: Set by `make test-pages`: tests that read a page, with its drawings.
PAGES_DRAWN = "FEDCOHORT_TEST_PAGES"

#: Tests of pages that look at no drawing. In `make test` none is made for them: it takes nine
#: tenths of a page's time. What looks at one, or says what is nowhere in a page, is in `LOOKED_AT`.
UNDRAWN = (
    "study/*", "audit/*", "network/*", "apps/test_check_fits.py", "test_examples.py",
    "docs/test_tutorial.py::test_the_guide*",
    *(f"report/test_{name}.py" for name in (
        "clusters", "coefficients", "comparison", "folded", "latents", "mixing", "others",
        "protection", "steps",
    )),
)  # fmt: skip
LOOKED_AT = tuple(f"report/test_{name}*" for name in (
    "*.py::*markup", "clusters.py::*at_risk", "clusters.py::*printed_page", "clusters.py::*hidden",
    "clusters.py::*simulated_patients", "clusters.py::*no_row", "clusters.py::*loads_nothing",
    "coefficients.py::*odds_ratios", "coefficients.py::*_level_", "comparison.py::*loads_nothing",
    "comparison.py::*other_patients", "folded.py::*decision_curve", "latents.py::*no_negative",
    "latents.py::*told_apart_by_none", "latents.py::*user_wrote", "mixing.py::*never_show",
    "others.py::test_the_table_has", "steps.py::*called_shrunken",
))  # fmt: skip

#: Tests of studies that make a page themselves, and look at no drawing: none is made for them.
MADE = tuple(f"study/test_{name}" for name in (
    "availability.py::test_the_report_says*", "feedback_study.py::*",
    "final.py::test_the_report_has*", "final.py::test_two_runs*", "final.py::test_a_private*",
    "free_parameters.py::test_a_deployed_study_says*", "local_tests.py::test_the_report*",
    "regression_study.py::test_led_by*", "shift_study.py::*",
))  # fmt: skip


@dataclass(frozen=True)
class Slow:
    """A line of the list."""

    number: int
    pattern: str
    kept: tuple[str, ...]
    seconds: float
    cousins: tuple[str, ...]

    @property
    def file(self) -> str:
        """The file of its tests."""
        return self.pattern.partition("::")[0]

    @property
    def is_file(self) -> bool:
        """Whether it is of all tests of a file."""
        return "::" not in self.pattern

    def has(self, test: str) -> bool:
        """Return whether a test is slow by this line."""
        return fits(self.pattern, test) and not any(fits(one, test) for one in self.kept)


def read(path: Path = LIST) -> list[Slow]:
    """Return the lines of the list; empty ones and those that begin with `#` are for readers."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        tests, seconds, stays = (part.strip() for part in line.rsplit("|", 2))
        pattern, *kept = tests.split(" ! ")
        file, _, rest = pattern.partition("::")
        function = f"{file}::{rest.partition('[')[0]}"
        kept = [function + one for one in kept]
        short = {"": (), ":": (file,), "[": (function,)}
        cousins = [
            "".join(short.get(one[0], ())) + one for one in (stays.split("; ") if stays else ())
        ]
        found.append(Slow(number, pattern, tuple(kept), float(seconds), (*(cousins or kept),)))
    return found


def fits(pattern: str, test: str) -> bool:
    """Return whether a test, `file::function[parameters]`, is one of a pattern."""
    if "::" not in pattern:
        return test.partition("::")[0] == pattern
    if "[" not in pattern:
        return test.partition("[")[0] == pattern
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), test, re.DOTALL) is not None


def by_file(lines: Iterable[Slow]) -> Mapping[str, list[Slow]]:
    """Return the lines by the file of their tests."""
    found: dict[str, list[Slow]] = {}
    for line in lines:
        found.setdefault(line.file, []).append(line)
    return found


def test_of(nodeid: str) -> str:
    """Return a test's id relative to this folder."""
    return nodeid.removeprefix("tests/")


def reads_a_page(test: str) -> bool:
    """Return whether a test reads a report's page."""
    return _one_of(PAGES, test)


def has_a_page(test: str) -> bool:
    """Return whether a test reads a report's page, or makes one itself."""
    return reads_a_page(test) or makes_a_page(test)


def current_test() -> str:
    """Return the test that runs, or whose fixture is made."""
    return test_of(os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0])


@contextmanager
def drawn_where_looked_at(blind: Callable[[str], bool] | None = None) -> Iterator[None]:
    """Draw no chart of a page for a test that looks at none.

    Parameters
    ----------
    blind : test → whether it looks at none; by default of the lists above.
    """
    from fedcohort import report
    from fedcohort.report.charts import render

    helper = report.Helper
    draw, blank = render.draw, render.Drawing(render.Markup(""), 1.0, 1.0)

    def as_seen(chart: Any) -> Any:
        return blank if (blind or _sees_none)(current_test()) else draw(chart)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "draw", as_seen)
        patch.setattr(report, "Helper", lambda **_: helper(cores=1))  # its start takes 0.4 s a page
        yield


def _sees_none(test: str) -> bool:
    return reads_a_page(test) and _one_of(UNDRAWN, test) and not _one_of(LOOKED_AT, test)


def makes_a_page(test: str) -> bool:
    """Return whether a test makes a report's page itself, and looks at no drawing."""
    return _one_of(MADE, test)


def _one_of(patterns: Iterable[str], test: str) -> bool:
    return any(fnmatch.fnmatchcase(test, f"{pattern}*") for pattern in patterns)


def wrong(lines: Iterable[Slow], tests: Mapping[str, bool], whole: bool) -> list[str]:
    """Return what is wrong with the list.

    Parameters
    ----------
    tests : of each test that was collected whether it is slow. Other files are read for names.
    whole : whether of each file that was collected all tests were.
    """
    lines = list(lines)
    slow_files = {line.file for line in lines if line.is_file}
    files: dict[str, dict[str, bool]] = {}
    for test, is_slow in tests.items() if whole else ():
        files.setdefault(test.partition("::")[0], {})[test] = is_slow
    found = []
    for line in lines:
        said = f"line {line.number}: {line.pattern}"
        if not there(line.pattern):
            found.append(f"{said}: no such test")
        elif line.file in files and not any(map(line.has, files[line.file])):
            found.append(f"{said}: no test is of this form, or all are kept")
        if not line.cousins:
            found.append(f"{said}: it does not say what stays in make test")
        for cousin in line.cousins:
            file = cousin.partition("::")[0]
            if not there(cousin):
                found.append(f"{said}: {cousin} does not exist")
            elif file in slow_files:
                found.append(f"{said}: {cousin} is slow")
            elif file in files and not any(
                fits(cousin, test) for test, is_slow in files[file].items() if not is_slow
            ):
                found.append(f"{said}: {cousin} is slow, or no test is of this form")
    return found


def there(pattern: str) -> bool:
    """Return whether a pattern's file is there, and has its function."""
    file, _, test = pattern.partition("::")
    source = _source(file)
    if source is None:
        return False
    name = re.escape(test.partition("[")[0]).replace(r"\*", r"\w*")
    return not test or re.search(rf"^(async )?def {name}\(", source, re.M) is not None


@cache
def _source(file: str) -> str | None:
    """Return a file's text."""
    path = TESTS / file
    return path.read_text() if path.is_file() else None
