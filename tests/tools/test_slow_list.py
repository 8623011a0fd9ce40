"""The list of slow tests names tests that exist, and what stays of each claim in `make test`."""

from __future__ import annotations

import fnmatch
import re

import pytest

import slow_list


def lines(tmp_path, text):
    (tmp_path / "slow.txt").write_text(text)
    return slow_list.read(tmp_path / "slow.txt")


HERE = "tools/test_slow_list.py"
LISTED = f"{HERE}::test_slow_tests_exist_and_something_of_each_claim_stays_in_make_test"


def test_slow_tests_exist_and_something_of_each_claim_stays_in_make_test(pytestconfig, collected):
    """Parameters are looked at in files that this run collected; of the others, names alone."""
    whole = not any("::" in argument for argument in pytestconfig.args)
    found = slow_list.wrong(slow_list.read(), collected, whole)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tools/no.py | 1 | " + LISTED, "no such test"),
        (f"{HERE}::test_no | 1 | {LISTED}", "no such test"),
        (f"{HERE}::test_a_form_is_of_tests[no*] | 1 | {LISTED}", "no test is of this form"),
        (f"{HERE}::test_a_form_is_of_tests | 1 | tools/no.py", "tools/no.py does not exist"),
        (f"{HERE}::test_a_form_is_of_tests | 1 | ::test_no", "::test_no does not exist"),
        (f"{HERE}::test_a_form_is_of_tests | 1 | ", "does not say what stays"),
        (f"{HERE}::test_a_form_is_of_tests | 1 | [b]", "[b] is slow"),
        (f"{HERE} | 1 | ::test_a_form_is_of_tests", "is slow"),
        (f"{HERE}::test_a_form_is_of_tests ! [*] | 1 | ::test_a_form_is_of_tests", "all are kept"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path, text, said):
    tests = {f"{HERE}::test_a_form_is_of_tests[{p}]": p == "b" for p in "ab"}
    found = slow_list.wrong(lines(tmp_path, text), tests, whole=True)
    assert any(said in line for line in found), found


@pytest.mark.parametrize(
    ("pattern", "test", "fits"),
    [
        ("a.py", "a.py::test_x[1]", True),
        ("a.py", "b/a.py::test_x", False),
        ("a.py::test_x", "a.py::test_x[1]", True),
        ("a.py::test_x", "a.py::test_x_too", False),
        ("a.py::test_x[1]", "a.py::test_x[1]", True),
        ("a.py::test_x[1]", "a.py::test_x[11]", False),
        ("a.py::test_x[*-k=2, b]", "a.py::test_x[a b-k=2, b]", True),
        ("a.py::test_x[*]", "a.py::test_x", False),
    ],
)
def test_a_form_is_of_tests(pattern, test, fits):
    assert slow_list.fits(pattern, test) == fits


def test_what_a_line_keeps_is_not_slow_and_is_what_stays(tmp_path):
    (line,) = lines(tmp_path, "# words\n\na.py::test_x ! [b] ! [c*] | 2.5 | \n")
    assert [line.has(f"a.py::test_x[{p}]") for p in ("a", "b", "cd")] == [True, False, False]
    assert (line.seconds, line.cousins) == (2.5, ("a.py::test_x[b]", "a.py::test_x[c*]"))
    (line,) = lines(tmp_path, "a.py::test_x[a] | 1 | [b]; ::test_y; d/b.py")
    assert line.cousins == ("a.py::test_x[b]", "a.py::test_y", "d/b.py")


@pytest.mark.parametrize("pattern", (*slow_list.PAGES, *slow_list.UNDRAWN, *slow_list.LOOKED_AT))
def test_tests_that_read_pages_or_look_at_drawings_exist(pattern):
    file, _, name = pattern.partition("::")
    files = [path for path in slow_list.TESTS.glob(file) if path.is_file()] if name else []
    names = [n for path in files for n in re.findall(r"^def (test_\w+)\(", path.read_text(), re.M)]
    if name:
        assert any(fnmatch.fnmatchcase(n, f"{name}*") for n in names)
    else:
        assert any(slow_list.TESTS.glob(file))
