"""`Fit.plot`: what is drawn for which method, how fits are laid over each other, and saving."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.protocol import NotSupported, SettingError
from fedcohort.report import plots


@pytest.fixture(scope="module")
def fed():
    rng = np.random.default_rng(0)
    n = 300
    age, arm = rng.normal(60, 8, n), rng.choice(["new", "old"], n)
    death = rng.exponential(np.exp(-(age - 60) / 10) * np.where(arm == "new", 9, 6))
    leave = rng.uniform(1, 15, n)
    frame = pd.DataFrame({"age": age, "arm": arm, "site": rng.choice(["n", "s"], n)})
    frame["time"], frame["event"] = np.minimum(death, leave) + 0.01, (death <= leave).astype(int)
    return fc.simulate(frame, sites="site", outcome=fc.Survival("time", "event"))


@pytest.fixture(scope="module")
def fits(fed):
    return {
        "protected": fc.fit("kaplan_meier", fed, by="arm"),
        "exact": fc.fit("kaplan_meier", fed, by="arm", time_grid="exact"),
        "hazard": fc.fit("nelson_aalen", fed),
        "cox": fc.fit("cox", fed),
        "pooled": fc.fit("cox", fed, strategy="centralised"),
        "test": fc.fit("log_rank", fed, by="arm"),
    }


def texts(picture) -> list[str]:
    """All texts of a picture."""
    root = ET.fromstring(picture.svg)
    return [e.text for e in root.iter("{http://www.w3.org/2000/svg}text") if e.text]


def test_curves_are_drawn_by_group_with_numbers_at_risk(fits):
    found = texts(fits["protected"].plot())
    assert {"new", "old", "survival", "Number at risk, about", "time since start"} <= set(found)
    records = fits["protected"].summary.records
    assert {str(n) for n in records} <= set(found)


def test_fits_are_laid_over_each_other_by_name(fits):
    both = fits["protected"].plot(fits["exact"], names=["grid", "pooled"])
    assert {"grid: new", "grid: old", "pooled: new", "pooled: old"} <= set(texts(both))
    default = fits["protected"].plot(fits["exact"])
    assert "kaplan_meier (2): old" in texts(default)


def test_a_curve_at_exact_times_steps_and_one_of_a_grid_does_not(fits):
    for name, steps in (("exact", True), ("protected", False)):
        lines = [d for d in re.findall(r' d="([^"]*)"', fits[name].plot().svg) if "Z" not in d]
        points = [xy.split(" ") for xy in re.split("[ML]", max(lines, key=len))[1:]]
        assert any(a[1] == b[1] for a, b in pairwise(points[2:])) == steps


def test_hazards_have_their_own_axis(fits):
    assert "cumulative hazard" in texts(fits["hazard"].plot())


def test_convergence_is_the_gap_to_the_best_of_all_and_the_steps(fits):
    found = texts(fits["cox"].plot(fits["pooled"], names=["3 sites", "pooled"]))
    assert {"log likelihood: gap to the best", "longest step", "round", "pooled"} <= set(found)
    assert any(t.startswith("1e-") for t in found)


def test_residuals_and_objective_have_a_panel_each_and_zeros_are_left_out():
    rows = [
        {"round": i, "objective": 2.0 + 0.1**i, "primal": 0.5**i, "dual": 0.0} for i in range(9)
    ]
    found = texts(plots.convergence_picture({"admm": rows}))
    assert {"objective: gap to the best", "primal residual"} <= set(found)
    assert "dual residual" not in found
    assert not any("nan" in t.lower() for t in found)


def test_a_number_that_is_not_shown_stands_as_a_dash_and_none_below_it_appears():
    steps = ((0.0, 40, 1.0), (10.0, None, 0.4))
    rows = [
        {"group": "all", "time": t, "about": n, "survival": s, "low": s, "high": s}
        for t, n, s in steps
    ]
    found = texts(plots.survival_picture({"km": rows}, "time", stepped=frozenset()))
    numbers = [t for t in found if t == "–" or t.isdigit()]
    assert numbers[:6] == ["0", "2", "4", "6", "8", "10"]  # the axis
    assert numbers[6:] == ["40", "32", "24", "16", "8", "–"]


def test_pictures_are_saved_by_suffix_and_shown_in_a_notebook(fits, tmp_path):
    picture = fits["protected"].plot()
    assert picture._repr_html_() == picture.svg
    for suffix, start in ((".svg", b"<svg"), (".png", b"\x89PNG"), (".html", b"<!doctype html>")):
        picture.save(tmp_path / f"curve{suffix}")
        assert (tmp_path / f"curve{suffix}").read_bytes().startswith(start)
    with pytest.raises(SettingError, match=r"\.svg, \.png or \.html"):
        picture.save(tmp_path / "curve.pdf")


def test_what_cannot_be_drawn_is_said_with_what_can(fits, fed):
    with pytest.raises(NotSupported, match=r"log_rank has neither.*kaplan_meier, nelson_aalen"):
        fits["test"].plot()
    with pytest.raises(NotSupported, match="not drawn in one picture"):
        fits["protected"].plot(fits["hazard"])
    with pytest.raises(NotSupported, match="kaplan_meier has neither curves"):
        fits["cox"].plot(fits["protected"])
    alone = fc.fit("kaplan_meier", fed, strategy="isolated")
    with pytest.raises(NotSupported, match=r"fit\.sites\[\.\.\.\] over each other: n, s"):
        alone.plot()
    alone.sites["n"].plot(alone.sites["s"], names=["n", "s"])
    for names in (["one"], ["a", "a"], "ab"):
        with pytest.raises(SettingError, match="names are"):
            fits["protected"].plot(fits["exact"], names=names)


def test_a_loaded_fit_draws_its_curves_and_not_its_convergence(fits, tmp_path):
    fits["protected"].save(tmp_path / "km")
    assert fc.load(tmp_path / "km").plot().svg == fits["protected"].plot().svg
    fits["cox"].save(tmp_path / "cox")
    with pytest.raises(NotSupported, match="until they are saved"):
        fc.load(tmp_path / "cox").plot()
