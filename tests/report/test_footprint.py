import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from numpy.testing import assert_allclose

from fedcohort.report import footprint
from fedcohort.report.footprint import Footprint
from fedcohort.report.run import Run
from fedcohort.report.sections import cost as section

DECLARED = [
    {"arm": "isolated", "role": "lower bound"},
    {"arm": "cox", "role": "arm"},
    {"arm": "centralised", "role": "upper bound"},
]


def fit(arm, scenario, repeat, seconds, up=0, down=0, site=None):
    return {"arm": arm, "scenario": scenario, "repeat": repeat, "site": site, "metrics": {},
            "seconds": seconds, "bytes_up": up, "bytes_down": down}  # fmt: skip


def run_of(*fits):
    return Run({"schema": 1, "declared": DECLARED, "arms": list(fits)}, Path())


def test_twelve_hours_of_one_core_are_what_the_formula_of_the_paper_gives():
    # Lannelongue et al., with their default core (12 W), memory (0.3725 W per GB), PUE and world
    # mean: 12 h x (12 W + 2 x 0.3725 W) x 1.67 = 255.41 Wh; x 475 g/kWh = 121.32 g
    spent = Footprint(12 * 3600.0, 0.0)
    assert_allclose(spent.energy, 0.2554098, rtol=1e-9)
    assert_allclose(spent.carbon, 121.319655, rtol=1e-9)


def test_a_gigabyte_costs_what_aslan_and_others_found_for_2015():
    assert_allclose(Footprint(0.0, 1e9).energy, 0.06, rtol=1e-12)


def test_all_repeats_and_settings_count_and_sites_are_not_counted_twice():
    found = footprint.by_arm(
        run_of(
            fit("isolated", "iid", 0, 5.0),
            fit("isolated", "iid", 0, 2.0, site="a"),
            fit("isolated", "iid", 0, 3.0, site="b"),
            fit("cox", "iid", 0, 1.0, 10, 20),
            fit("cox", "iid", 1, 1.5, 10, 20),
            fit("cox", "skewed", 0, 2.0, 10, 20),
        )
    )
    assert found == {"isolated": Footprint(5.0, 0.0), "cox": Footprint(4.5, 90.0)}


def test_the_upper_bound_stands_under_each_setting_and_counts_once_a_repeat():
    fits = [fit("centralised", s, r, 4.0 + r, 100) for s in ("iid", "skewed") for r in (0, 1)]
    assert footprint.by_arm(run_of(*fits)) == {"centralised": Footprint(9.0, 200.0)}


def test_fits_without_numbers_count_as_nothing_and_a_run_without_any_has_no_section():
    run = run_of({**fit("cox", "iid", 0, None), "bytes_up": None})
    assert footprint.by_arm(run) == {"cox": Footprint(0.0, 0.0)}
    assert section.carbon(run) is None


@pytest.mark.parametrize(
    ("seconds", "energy", "carbon", "car"),
    [
        # 1 s: 12.745 W x 1.67 / 3600 = 5.912 mWh, 2.808 mg; 0.016 m of a car at 175 g/km
        (1.0, "5.9 mWh", "2.8 mg", "less than a metre"),
        (3600.0, "21 Wh", "10 g", "58 metres"),
        (1e6, "5.9 kWh", "2.8 kg", "16 km"),
        (0.01, "below 1 mWh", "below 1 mg", "less than a metre"),
    ],
)
def test_amounts_are_said_in_units_that_people_read(seconds, energy, carbon, car):
    made = section.carbon(run_of(fit("cox", "iid", 0, seconds)))
    cells = ["".join(c.itertext()) for c in list(ET.fromstring(made.body).iter("tr"))[-1]]
    assert cells[2] == cells[5] == energy
    assert cells[3:5] == ["0 bytes", "0 Wh"]
    assert cells[6] == carbon
    assert f"{carbon} of CO₂, {car} in a car." in made.intro


def test_a_hospitals_part_is_its_own_seconds_what_it_sent_and_a_share_of_what_all_were_sent():
    run = run_of(
        fit("cox", "natural", 0, 3.0, 300, 100),
        fit("cox", "natural", 0, 0.5, 100, site="a"),
        fit("cox", "natural", 0, 1.5, 200, site="b"),
        fit("cox", "natural", 1, 3.0, 300, 100),
        fit("cox", "natural", 1, 0.7, 100, site="a"),
        fit("cox", "natural", 1, 1.3, 200, site="b"),
        fit("cox", "iid", 0, 3.0, 300, 100),
        fit("isolated", "natural", 0, 0.5, 0, site="a"),
    )
    found = footprint.by_site(run)
    assert set(found) == {"cox"}
    assert_allclose(found["cox"]["a"].seconds, 1.2)
    assert_allclose([found["cox"][s].traffic for s in "ab"], [300.0, 500.0])
    made = section.carbon(run)
    assert "By hospital" in made.body
    cells = ["".join(c.itertext()) for c in ET.fromstring(made.body).iter("tr")]
    assert any(row.startswith("coxa1.2") for row in cells)


def test_rows_of_a_run_that_did_not_measure_hospitals_make_no_part():
    run = run_of(fit("cox", "natural", 0, 3.0, 300), fit("cox", "natural", 0, 3.0, site="a"))
    assert footprint.by_site(run) == {}
    assert "By hospital" not in section.carbon(run).body


def test_energy_of_computing_and_of_traffic_stand_apart_so_that_less_time_may_use_more():
    # 13 s x 12.745 W x 1.67 / 3600 = 76.9 mWh; 7.6 s: 44.9 mWh; 0.051 GB x 60 Wh = 3.06 Wh
    made = section.carbon(
        run_of(fit("cox", "iid", 0, 13.0), fit("isolated", "iid", 0, 7.6, 50e6, 1e6))
    )
    rows = [["".join(c.itertext()) for c in row] for row in ET.fromstring(made.body).iter("tr")]
    told = {row[0]: row[1:] for row in rows[1:]}
    assert told["cox"] == ["13 s", "77 mWh", "0 bytes", "0 Wh", "77 mWh", "37 mg"]
    lower = next(row for name, row in told.items() if name not in ("cox", "All"))
    assert lower == ["7.6 s", "45 mWh", "51.0 MB", "3.1 Wh", "3.1 Wh", "1.5 g"]
    assert "use more energy in less time" in made.body
    assert "2015" in made.body
