"""A site with a whole column in another unit is named with it; sites that differ are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.data.check import ERROR, WARNING, Sheet, examine
from fedcohort.data.check.accepted import EVERY, NOTHING, Accepted
from fedcohort.data.check.between import Middle, differing
from fedcohort.data.check.conversions import DECIMAL, TIMES, conversions_for, conversions_of
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.outcome import Binary, Survival
from fedcohort.protocol import DataError

SITES = ("north", "south", "west", "east")
#: Of a column: medians at four hospitals that differ, as real ones do; and the spread of logs.
COLUMNS = {
    "survival": ((500, 900, 700, 650), 1.1),
    "wbc": ((5.0, 6.5, 7.5, 6.0), 0.6),
    "hb": ((13.1, 12.8, 13.9, 13.4), 0.12),
    "temperature": ((36.8, 37.1, 37.4, 36.9), 0.015),
    "height": ((168, 171, 174, 170), 0.055),
    "weight": ((71, 76, 82, 75), 0.18),
    "glucose": ((98, 110, 118, 105), 0.3),
    "creatinine": ((70, 82, 90, 77), 0.4),
    "hba1c": ((5.6, 6.1, 6.4, 5.9), 0.15),
}


def cells(name: str, n: int = 150) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    medians, spread = COLUMNS[name]
    return {
        site: np.round(np.exp(rng.normal(np.log(median), spread, n)), 1) + 0.1
        for site, median in zip(SITES, medians, strict=True)
    }


def said(columns: dict[str, np.ndarray], name: str, unit: str = "", accepted=NOTHING):
    """Return what `examine` finds of units, of one column and a survival outcome."""
    known = Dictionary.from_dict({name: {"type": "number", "unit": unit}, "dead": "event",
                                  "survival" if name != "survival" else "t": "time"})  # fmt: skip
    sheets = []
    for site, x in columns.items():
        dead = np.arange(len(x)) % 2.0
        other = "survival" if name != "survival" else "t"
        frame = pd.DataFrame({name: x, "dead": dead, other: 100.0 + np.arange(len(x)) % 97})
        sheets.append(Sheet(frame, f"{site}.csv", site))
    outcome = Survival("survival", "dead")
    found = examine(sheets, known, outcome, warnings=False, accepted=accepted)
    return [f for f in found if f.rule == "site units"]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("survival", lambda x: x / 30.4375, "looks like months where the others have days"),
        ("survival", lambda x: x / 365.25, "looks like years where the others have days"),
        ("wbc", lambda x: x * 1000, "looks like cells/µl where the others have 10⁹ cells/l"),
        ("hb", lambda x: x / 1.6114, "like mmol/l where the others have g/dl"),
        ("hb", lambda x: x * 10, "like g/l where the others have g/dl"),
        ("temperature", lambda x: 1.8 * x + 32, "degrees Fahrenheit where the others have degrees"),
        ("height", lambda x: x / 2.54, "looks like inches where the others have centimetres"),
        ("height", lambda x: x / 100, "a unit 100 times larger than the others have"),
        ("weight", lambda x: x * 2.2046, "looks like pounds where the others have kilograms"),
        ("glucose", lambda x: x * 0.0555, "like mmol/l where the others have mg/dl"),
        ("creatinine", lambda x: x / 88.4, "like mg/dl where the others have µmol/l"),
        ("hba1c", lambda x: 10.929 * x - 23.5, "like mmol/mol where the others have %"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("site", ["east", "south"])
def test_a_column_in_another_unit_at_one_site_is_an_error_that_names_it(name, change, words, site):
    columns = cells(name)
    assert not said(columns, name)
    columns[site] = change(columns[site])
    (finding,) = said(columns, name)
    assert (finding.severity, finding.site, finding.column) == (ERROR, site, name)
    assert finding.line.startswith(f"{site}.csv: column {name!r} at site {site!r} ")
    assert words in finding.line
    assert f"units: [{name}]" in finding.line


def test_the_message_has_the_medians_in_two_digits():
    columns = cells("survival")
    columns["east"] = columns["east"] / 30.4375
    (finding,) = said(columns, "survival")
    assert "where the others have days: median 24 beside 470 to 1,100. Convert" in finding.line


def test_what_the_study_accepts_is_a_warning_and_no_error():
    columns = cells("wbc")
    columns["east"] = columns["east"] * 1000
    for accepted in (EVERY, Accepted(("wbc",))):
        (finding,) = said(columns, "wbc", accepted=accepted)
        assert finding.severity == WARNING
        assert finding.line.endswith("The study accepts it (units).")
    assert said(columns, "wbc", accepted=Accepted(("hb",)))[0].severity == ERROR
    with pytest.raises(DataError, match=r"units: there is no column 'wcb'. Did you mean 'wbc'"):
        Accepted(("wcb",)).check(["hb", "wbc"])


@given(st.lists(st.floats(0.58, 1.73), min_size=4, max_size=4), st.integers(0, 99))
def test_follow_up_that_differs_by_three_times_is_no_other_unit(factors, seed):
    """An emergency ward and an oncology clinic."""
    rng = np.random.default_rng(seed)
    middles = []
    for i, factor in enumerate(factors):
        x = np.minimum(factor * rng.exponential(800, 200), rng.uniform(300, 3000, 200)) + 1
        middles.append(Middle(str(i), tuple(np.quantile(x, (0.25, 0.5, 0.75)).tolist()), 200))
    assert not differing(middles, TIMES)


@given(st.floats(1e-6, 1e6), st.permutations(range(4)))
def test_what_is_told_depends_on_no_common_unit_and_no_order(scale, order):
    medians = [22.0, 500.0, 900.0, 700.0]
    sites = [Middle(str(m), (m / 2.5 * scale, m * scale, 2 * m * scale), 80) for m in medians]
    found = differing([sites[i] for i in order], TIMES)
    assert [(f.site, f.conversion.large, f.smaller) for f in found] == [("22.0", "months", False)]


def test_two_sites_say_that_either_may_be_the_one():
    a, b = Middle("a", (250, 600, 1300), 300), Middle("b", (9, 20, 43), 90)
    (found,) = differing([b, a], TIMES)
    assert found.site == "b", "the smaller site"
    assert "looks like months where the other site has days" in found.text("t")


def test_codes_few_values_and_a_median_of_0_say_nothing():
    wide = Middle("a", (4.0, 6.0, 9.0), 50)
    for other in ((6000.0, 6000.0, 6000.0), (0.0, 0.0, 5000.0), (-1.0, 0.0, 5.0)):
        assert not differing([wide, Middle("b", other, 50)], DECIMAL)
    assert not differing([wide], DECIMAL)
    columns = {site: x[:19] for site, x in cells("wbc").items()}
    columns["east"] = columns["east"] * 1000
    assert not said(columns, "wbc")


def test_most_sites_have_to_agree():
    apart = [Middle(str(m), (m * 0.9, m, m * 1.1), 100) for m in (1.0, 10.0, 100.0)]
    assert not differing(apart, DECIMAL)
    assert len(differing([*apart, apart[0]], DECIMAL)) == 2


def test_times_of_a_survival_outcome_are_tried_as_times_whatever_they_are_called():
    outcome = Survival("os", "dead", "late")
    for name in ("os", "late"):
        assert conversions_for(Variable(name), outcome) == TIMES
    assert conversions_for(Variable("os"), None) == conversions_for(Variable("os"), Binary("y"))
    assert conversions_for(Variable("os"), None) == DECIMAL


def test_a_length_at_one_site_is_named_by_units_of_length():
    sites = [Middle(s, (20.0, 25.0, 35.0), 170) for s in "abc"]
    sites.append(Middle("d", (2.0, 3.0, 4.0), 170))
    (found,) = differing(sites, conversions_of("tsize", "mm"))
    said = "a unit 10 times larger than the others have (such as millimetres and centimetres)"
    assert said in found.text("tsize")


def test_only_conversions_of_the_columns_own_unit_are_tried():
    assert {c.large for c in conversions_of("wait", "days")} == {"years", "months", "weeks"}
    assert {c.example for c in conversions_of("hba1c", "%")} == {
        "percent and shares", "HbA1c in mmol/mol and %",
    }  # fmt: skip
    (f,) = [c for c in conversions_of("bodyTemp", "") if c.offset]
    assert f.to_small(37.0) == pytest.approx(98.6)
    assert f.to_large(98.6) == pytest.approx(37.0)
