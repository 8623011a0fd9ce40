"""`Fit.plot`: what is drawn for which method, how fits are laid over each other, and saving."""

from __future__ import annotations

import math
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


def placed(picture) -> list[tuple[str, float, float]]:
    """All texts of a picture, with x and y."""
    root = ET.fromstring(picture.svg)
    found = root.iter("{http://www.w3.org/2000/svg}text")
    return [(e.text, float(e.get("x")), float(e.get("y"))) for e in found if e.text]


def test_curves_are_drawn_by_group_with_numbers_at_risk(fits):
    found = texts(fits["protected"].plot())
    assert {"new", "old", "survival", "Number at risk, about", "time since start"} <= set(found)
    records = fits["protected"].summary.records
    assert {str(n) for n in records} <= set(found)


def test_each_number_at_risk_stands_below_a_labelled_tick(fits):
    for name in ("protected", "exact", "hazard"):
        found = placed(fits[name].plot())
        table = next(y for text, _, y in found if text.startswith("Number at risk"))
        axis = next(y for text, _, y in found if text.startswith("time since")) - 18
        ticks = [x for _, x, y in found if y == axis]
        columns = {x for text, x, y in found if y > table}
        assert len(columns) >= 4
        assert all(min(abs(x - t) for t in ticks) < 1 for x in columns), name


def test_the_axis_of_time_has_the_unit_of_the_dictionary(fed):
    known = fed.dictionary.to_dict()
    known["variables"]["time"]["unit"] = "months"
    months = fc.simulate(fed.frames, outcome=fed.outcome, dictionary=known)
    assert "time (months)" in texts(fc.fit("kaplan_meier", months).plot())


def test_no_number_at_risk_is_below_the_fits_own_min_cell(tmp_path):
    t = np.r_[np.linspace(1, 60, 60), np.full(40, 70.0)]
    frame = pd.DataFrame({"time": t, "event": (t < 70).astype(int), "site": ["a", "b"] * 50})
    data = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "event"))
    for least, hidden in ((5, False), (41, True)):
        fit = fc.fit("kaplan_meier", data, min_cell=least)
        fit.save(tmp_path / str(least))
        for shown in (fit, fc.load(tmp_path / str(least))):
            found = texts(shown.plot())
            numbers = found[found.index("Number at risk, about") + 1 : -1]
            assert not any(t.isdigit() and 0 < int(t) < least for t in numbers)
            assert ("–" in numbers) == hidden


def test_a_number_between_two_that_are_shown_is_not_below_min_cell():
    steps = ((0.0, 40, 1.0), (10.0, 0, 0.4))
    rows = [
        {"group": "all", "time": t, "about": n, "survival": s, "low": s, "high": s}
        for t, n, s in steps
    ]
    for least, last in ((5, "8"), (9, "–")):
        picture = plots.survival_picture({"km": rows}, "time", min_cell={"km": least})
        found = texts(picture)
        assert found[found.index("Number at risk, about") + 1 :][:6][-2:] == [last, "0"]


def test_fits_are_laid_over_each_other_by_name(fits):
    both = fits["protected"].plot(fits["exact"], names=["grid", "pooled"])
    assert {"grid: new", "grid: old", "pooled: new", "pooled: old"} <= set(texts(both))
    default = fits["protected"].plot(fits["exact"])
    assert "kaplan_meier (2): old" in texts(default)


@pytest.mark.parametrize("name", ["exact", "protected", "hazard"])
def test_every_curve_goes_level_and_upright_and_never_aslant(fits, name):
    lines = [d for d in re.findall(r' d="([^"]*)"', fits[name].plot().svg) if "Z" not in d]
    points = [xy.split(" ") for xy in re.split("[ML]", max(lines, key=len))[1:]]
    assert len(points) > 5
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(points))


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
    found = texts(plots.survival_picture({"km": rows}, "time", min_cell={"km": 5}))
    numbers = [t for t in found if t == "–" or t.isdigit()]
    assert numbers[:6] == ["0", "2", "4", "6", "8", "10"]  # the axis
    assert numbers[6:] == ["40", *"–––––"]  # towards a hidden number nothing is known


def test_no_two_curves_look_the_same_and_more_than_can_be_told_apart_are_refused():
    rows = [
        {"group": str(g), "time": t, "about": 40, "survival": s, "low": s, "high": s}
        for g in range(9)
        for t, s in ((0.0, 1.0), (5.0, 0.5))
    ]
    plots.survival_picture({"km": rows[:16]}, "time", min_cell={"km": 5})
    with pytest.raises(NotSupported, match="tells 8 lines apart, and these are 9 curves"):
        plots.survival_picture({"km": rows}, "time", min_cell={"km": 5})
    history = [{"round": 0, "loss": 1.0}]
    with pytest.raises(NotSupported, match="these are 9 fits"):
        plots.convergence_picture({str(i): history for i in range(9)})


def test_pictures_are_saved_by_suffix_and_shown_in_a_notebook(fits, tmp_path):
    picture = fits["protected"].plot()
    assert picture._repr_html_() == picture.svg
    for suffix, start in ((".svg", b"<svg"), (".png", b"\x89PNG"), (".html", b"<!doctype html>")):
        picture.save(tmp_path / f"curve{suffix}")
        assert (tmp_path / f"curve{suffix}").read_bytes().startswith(start)
    assert "svg{max-width:100%" in (tmp_path / "curve.html").read_text()
    with pytest.raises(SettingError, match=r"\.svg, \.png or \.html"):
        picture.save(tmp_path / "curve.pdf")


def test_what_cannot_be_drawn_is_said_with_what_can(fits, fed):
    with pytest.raises(NotSupported, match=r"to plot; these.*have curves: kaplan_meier, nelson_aa"):
        fits["test"].plot()
    with pytest.raises(NotSupported, match="not drawn in one picture"):
        fits["protected"].plot(fits["hazard"])
    with pytest.raises(NotSupported, match=r"kaplan_meier has neither.*plot with the others"):
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


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(1)
    n = 600
    x = rng.normal(size=(n, 10))
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(10)])
    frame["site"] = rng.choice(list("abcd"), n)
    shift = frame["site"].map({"a": -0.6, "b": 0.1, "c": 0.2, "d": 0.7})
    frame["score"] = x[:, 0] - 0.5 * x[:, 3] + shift + rng.normal(size=n)
    frame["ill"] = (rng.random(n) < 1 / (1 + np.exp(-0.7 * x[:, 0] - shift))).astype(int)
    return frame


@pytest.fixture(scope="module")
def paths(sites, fed):
    data = fc.simulate(sites.drop(columns="ill"), sites="site", outcome=fc.Continuous("score"))
    return {
        "lasso": fc.fit("lasso", data),
        "bic": fc.fit("elastic_net", data, rule="bic"),
        "cox": fc.fit("cox", fed, scale="standard", penalty="auto", path=8),
    }


def ticks_of(picture, title: str) -> list[tuple[str, float]]:
    """Labels of the first horizontal axis with a title, and where they stand."""
    found = placed(picture)
    below, middle = next((y, x) for t, x, y in found if t.startswith(title))
    ticks = [(t, x) for t, x, y in found if y == below - 18 and abs(x - middle) < 340]
    return ticks[: len({t for t, _ in ticks})]


def place(ticks, value: float) -> float:
    """Where a value stands on an axis of equal ratios, by its first and last labels."""
    (a, left), (b, right) = ticks[0], ticks[-1]
    low, high = math.log(float(a)), math.log(float(b))
    return left + (math.log(value) - low) / (high - low) * (right - left)


def lines(picture, colour: str) -> list[np.ndarray]:
    """The points (n, 2) of each line of a colour, a curve of a panel."""
    found: list[np.ndarray] = []
    pattern = rf'stroke="{colour}"[^>]*translate\(([\d.]+) ([\d.]+)\)" d="M([^"MZ]*)"'
    for x, y, d in re.findall(pattern, picture.svg):
        points = np.array([xy.split() for xy in re.split("L", d.replace("-", " -"))], float)
        found.append(points + np.array([x, y], float))
    return found


BLUE, GREY = "#0068b3", "#6b7280"


@pytest.mark.parametrize("name", ["lasso", "cox"])
def test_a_path_shows_coefficients_by_penalty_and_marks_the_one_chosen(paths, name):
    path, picture = paths[name].model.path_, paths[name].plot()
    ticks = ticks_of(picture, "penalty λ")
    own = path.penalties[path.chosen]
    upright = float(re.search(r'stroke-dasharray="2,4" d="M([\d.]+) ', picture.svg)[1])
    assert abs(upright - place(ticks, own)) < 1
    assert any(t.endswith(f"the fit's, {own:.3g}") for t in texts(picture))
    first = lines(picture, BLUE)[0]
    assert np.allclose(first[:, 0], [place(ticks, v) for v in path.penalties[::-1]], atol=1.5)
    # heights are those of the coefficients, but for the axis
    height, beta = first[:, 1], path.coefficients[::-1, 0]
    assert np.corrcoef(height, beta)[0, 1] < -0.9999


def test_beside_a_path_stands_what_chose_it(paths):
    path, found = paths["lasso"].model.path_, texts(paths["lasso"].plot())
    assert "mean squared error held out, ± SE" in found
    curve = lines(paths["lasso"].plot(), GREY)[-1]
    assert np.corrcoef(curve[:, 1], path.error[::-1])[0, 1] < -0.9999
    cox = paths["cox"].model.path_
    assert "log-likelihood held out, for each event" in texts(paths["cox"].plot())
    curve = lines(paths["cox"].plot(), GREY)[-1]
    assert np.corrcoef(curve[:, 1], cox.held_out[::-1])[0, 1] < -0.9999
    assert curve[:, 1].argmin() == len(curve) - 1 - cox.chosen  # the highest is the fit's
    assert not any("held out" in t for t in texts(paths["bic"].plot()))


def test_of_many_coefficients_the_largest_have_names(paths):
    path, found = paths["lasso"].model.path_, texts(paths["lasso"].plot())
    named = {t for t in found if re.fullmatch(r"x\d", t)}
    size = np.abs(path.coefficients[path.chosen])
    assert len(named) == 8
    assert {"x0", "x3"} <= named
    assert all(size[int(t[1])] >= np.sort(size)[2] for t in named)
    assert "2 others" in found


def test_a_path_is_drawn_of_one_fit_also_when_it_is_loaded(paths, fits, tmp_path):
    with pytest.raises(NotSupported, match="cox has a path of penalties, which is drawn of one"):
        paths["cox"].plot(fits["cox"], names=["cox", "plain"])
    for name in ("cox", "lasso"):
        paths[name].save(tmp_path / name)
        assert fc.load(tmp_path / name).plot().svg == paths[name].plot().svg


@pytest.fixture(scope="module")
def by_sites(sites):
    data = fc.simulate(sites.drop(columns="score"), sites="site", outcome=fc.Binary("ill"))
    few = fc.simulate(sites[["x0", "x1", "site", "ill"]], sites="site", outcome=fc.Binary("ill"))
    return {
        "meta": fc.fit("meta_analysis", few),
        "all": fc.fit("meta_analysis", data),
        "mixed": fc.fit("mixed", few, site_effects=True),
        "plain": fc.fit("mixed", few),
    }


def test_a_forest_plot_has_each_site_the_pooled_estimate_and_what_a_new_site_may_have(by_sites):
    fit = by_sites["meta"]
    picture = fit.plot(covariate="x0")
    ticks = ticks_of(picture, "odds ratio, log")
    pooled = fit.summary.set_index("covariate").loc["x0"]
    rows = [r for r in fit.model.sites if r["covariate"] == "x0"]
    marks = [float(x) for x in re.findall(r'<path transform="translate\(([\d.]+) ', picture.svg)]
    assert np.allclose(marks, [place(ticks, math.exp(r["coefficient"])) for r in rows], atol=1)
    left, right = map(float, re.search(r'"M([\d.]+) [\d.]+L([\d.]+) ', span(picture)).groups())
    ends = (pooled.prediction_low, pooled.prediction_high)
    assert np.allclose([left, right], [place(ticks, math.exp(v)) for v in ends], atol=1)
    found = texts(picture)
    assert [t for t in found if t in {r["site"] for r in rows}] == ["a", "b", "c", "d"]
    assert f"{pooled.odds_ratio:.2f} ({pooled.or_low:.2f}–{pooled.or_high:.2f})" in found
    assert f"I² {100 * pooled.i2:.0f} %" in found
    assert "x1" not in found


def span(picture) -> str:
    """The pale line behind the marks."""
    return re.search(r'<path [^>]*stroke-width="9"[^>]*>', picture.svg)[0]


def test_a_forest_plot_has_a_panel_for_each_covariate(by_sites, tmp_path):
    picture = by_sites["all"].plot()
    heads = [(t, y) for t, _, y in placed(picture) if re.fullmatch(r"x\d", t)]
    assert [t for t, _ in heads] == [f"x{j}" for j in range(10)]
    assert texts(picture).count("A new site, expected") == 10
    picture.save(tmp_path / "forest.png")
    with pytest.raises(SettingError, match="no covariate 'x9'; it is one of x0, x1"):
        by_sites["meta"].plot(covariate="x9")
    with pytest.raises(SettingError, match="mixed has no forest plot"):
        by_sites["mixed"].plot(covariate="x0")
    with pytest.raises(NotSupported, match="forest plot, which is drawn of one fit"):
        by_sites["meta"].plot(by_sites["all"])


def test_effects_of_sites_stand_in_order_where_they_were_revealed(by_sites):
    effects = by_sites["mixed"].model.site_effects
    picture = by_sites["mixed"].plot()
    assert [t for t in texts(picture) if t in effects] == sorted(effects, key=effects.get)
    assert {"effect on the linear predictor; shaded: 95 % of sites"} <= set(texts(picture))
    assert "log likelihood: gap to the best" in texts(by_sites["plain"].plot())
