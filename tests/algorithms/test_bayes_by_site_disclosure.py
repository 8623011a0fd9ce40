"""What the sums of a fit with effects of sites tell of each site, and what a site refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from algorithms.cox_cases import simulated as survival
from algorithms.cox_cases import split
from algorithms.mixed_cases import simulated
from deployed_cases import terms_of
from fedcohort.algorithms.bayes_glm import LINEAR, LOGISTIC, site_steps, steps
from fedcohort.algorithms.bayes_net.virtual import keep_own
from fedcohort.algorithms.cox import BAYES
from fedcohort.algorithms.cox import site_steps as cox_steps
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Refused, Task
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call, Host
from fedcohort.protocol.step import Site
from fedcohort.runtime.local import local
from fedcohort.study.at_site.bounds import Bounds
from fedcohort.study.at_site.pins import InMemory, Pins
from fedcohort.training.site_effects import Grid, integrated


def products_of(part, parts):
    """A site's cross-products of standardised covariates and the centred outcome."""
    x, y = np.vstack([p.x for p in parts]), np.concatenate([p.y for p in parts])
    z = np.column_stack([np.ones(len(part.y)), (part.x - x.mean(axis=0)) / x.std(axis=0)])
    z = np.column_stack([z, part.y - y.mean()])
    return z.T @ z


@pytest.mark.parametrize("sites", [2, 3, 4, 5])
def test_sums_at_two_tau_tell_the_sizes_and_means_of_few_sites_with_own_intercepts(sites):
    """So the page says it, and a site needs `min_cell` records. S − M(τ) is Σ c s sᵀ, with the
    totals s of a site and c = τ²/(1 + n τ²); pencils of two τ have one eigenvector for each site.
    """
    parts = simulated((30, 22, 14, 41, 9)[:sites], 1.0, 4, p=4)
    spread = np.array([[0.0], [0.3], [1.0]])
    told = sum(integrated(products_of(p, parts), spread).inner for p in parts)
    small, large = (told[0] - told[k] for k in (1, 2))
    values, vectors = np.linalg.eig(np.linalg.pinv(large, rcond=1e-11, hermitian=True) @ small)
    keep = values.real > 1e-6
    assert keep.sum() == sites
    ratio, s = values.real[keep], (large @ vectors[:, keep]).real
    n = (0.09 - ratio) / (0.09 * (ratio - 1.0))  # of c(0.3)/c(1) = 0.09 (1 + n)/(1 + 0.09 n)
    sizes = [len(p.y) for p in parts]
    assert sorted(np.rint(n).astype(int)) == sorted(sizes)
    for k, size in enumerate(np.rint(n).astype(int)):
        own = products_of(parts[sizes.index(size)], parts)
        assert_allclose(s[1:, k] / s[0, k], own[0, 1:] / own[0, 0], atol=1e-6)


def sensitivity(sites, spread, slopes, p=2):
    """The singular values of what is told, as a function of what it tells of each site."""
    rng = np.random.default_rng(sites)
    parts = simulated(tuple(rng.integers(20, 90, sites)), 0.8, sites, p=p)
    each = [products_of(part, parts) for part in parts]
    unit = np.sqrt(np.diag(sum(each)))
    rows, columns = np.tril_indices(p + 2)
    known = columns < (p + 1 if slopes else 1)  # of the outcome's square only the sum is told
    slope = []
    for s in each:
        own = np.sqrt(np.diag(s))
        for i, j in zip(rows[known], columns[known], strict=True):
            step = np.zeros_like(s)
            step[i, j] = step[j, i] = 1e-5 * own[i] * own[j]
            up, down = (integrated(s + sign * step, spread) for sign in (1, -1))
            d = (up.inner - down.inner) / np.outer(unit, unit)
            if not slopes:  # what the rows' products add is the same at all τ
                d -= d[0]
            slope.append(np.r_[d[:, rows, columns].ravel(), up.log_det - down.log_det] / 2e-5)
    values = np.linalg.svd(np.array(slope).T, compute_uv=False)
    return len(slope), values / values[0]


@pytest.mark.parametrize("sites", [2, 3, 4, 5])
@pytest.mark.parametrize("slopes", [False, True])
def test_a_fits_own_points_of_tau_determine_each_of_few_sites(sites, slopes):
    """Equations outnumber unknowns, and errors of 1e-16 of double precision grow by less than
    1e7: nothing about few sites is hidden by the sum (docs: what is revealed)."""
    spread = Grid.over(1.0, 200, 2 * slopes).spread
    unknown, values = sensitivity(sites, spread, slopes)
    assert len(values) == unknown
    assert values[-1] > 1e-7


def test_fewer_points_would_hide_nothing_where_sites_are_few():
    """Three points still determine the intercepts' totals of five sites, and all of two sites."""
    _, values = sensitivity(5, np.array([[0.0], [0.2], [1.0]]), slopes=False)
    assert values[-1] > 1e-7
    _, values = sensitivity(2, np.array([[0.0] * 3, [0.2] * 3, [1.0] * 3]), slopes=True)
    assert values[-1] > 1e-7


@pytest.mark.parametrize("method", [LINEAR, LOGISTIC], ids=["linear", "logistic"])
def test_replies_are_sums_and_effects_of_a_site_leave_only_where_asked(method):
    rng = np.random.default_rng(0)
    parts = []
    for n in (60, 40, 50):
        x = rng.normal(size=(n, 2))
        parts.append(LabelledTable(x, (rng.random(n) < 0.5).astype(float)))
    for asked in (False, True):
        fed = local([Host(f"site-{k}", part, method.steps) for k, part in enumerate(parts)])
        task = Task(kind=method.tasks[0], features=("u", "v"), outcome=method.outcomes[0])
        config = method.configure({"by_site": "intercept", "site_effects": asked})
        model = method.fit(fed, config, task)
        assert len(model.own) == 3 * asked
        used = {}
        for line in map(json.loads, fed.ledger.lines):
            used.setdefault(line["verb"], set()).add(line["step"])
            assert all(n not in field["shape"] for n in (60, 40, 50, 150)
                       for field in line["fields"].values())  # fmt: skip
        assert used.get("gather", set()) == ({"own_effects"} if asked else set())
        assert ("each site's own effects" in method.reveals_with(config)) == asked
        allowed = {step.name for step in method.asks(config)}
        assert {step for steps in used.values() for step in steps} <= allowed


def table(n=40):
    rng = np.random.default_rng(1)
    return LabelledTable(rng.normal(size=(n, 2)), (rng.random(n) < 0.5).astype(float))


HONEST = {
    "origin": np.zeros(3), "centre": np.zeros(2), "scale": np.ones(2), "share": 0.5,
    "spread": np.array([[0.0], [0.5]]), "damping": 1.0, "slopes": False, "least": 5,
}  # fmt: skip


def projected(state=None, **asked):
    site = Site(name="s", data=table(), state=state, entropy=(0,))
    return site_steps.project_sites.run(site, **(HONEST | asked))


def begun():
    return projected(mean=np.zeros((0, 3)), covariance=np.zeros((0, 3, 3))).state


@pytest.mark.parametrize("change", [
    {"spread": np.array([[0.5] * 3, [0.5] * 3])}, {"spread": np.array([[-0.5], [0.5]])},
    {"spread": np.array([[np.nan], [0.5]])}, {"spread": np.zeros((0, 1))},
    {"spread": np.zeros((1001, 1))}, {"slopes": True},
    {"share": 0.0}, {"damping": 2.0}, {"scale": np.zeros(2)},
    {"covariance": np.stack([np.eye(3), np.zeros((3, 3))])}, {"mean": np.zeros((1, 3))},
    {"covariance": 1e6 * np.stack([np.eye(3), np.eye(3)])},
], ids=str)  # fmt: skip
def test_a_site_refuses_a_question_that_no_honest_round_asks(change):
    asked = {"mean": np.zeros((2, 3)), "covariance": np.stack([0.01 * np.eye(3)] * 2)} | change
    with pytest.raises(Refused, match="site 's' approximates no rows") as error:
        projected(begun(), **asked)
    assert "\n" not in str(error.value)


def test_no_row_counts_for_more_than_a_quarter_wherever_rows_are_approximated():
    for width in (1e-12, 1e-6, 1e-3, 0.02):
        asked = {"mean": np.ones((2, 3)), "covariance": width * np.stack([np.eye(3)] * 2)}
        state = projected(begun(), **asked).state
        assert (state.precision >= 0).all()
        assert (state.precision <= 0.25).all()


@pytest.mark.parametrize("name", ["origin", "centre", "scale", "share", "spread"])
def test_what_an_honest_fit_asks_once_stays_its_first_value(tmp_path, name):
    terms = terms_of(
        tmp_path, "breast_cancer", "[{method: bayes_logistic, by_site: intercept}]",
        task="classification", bounds="[]",
    )  # fmt: skip
    pins = Pins(Bounds(terms, "fit", terms.plan.arms[0]), InMemory())
    one = Call(0, site_steps.project_sites, "sum", None, Arguments({}, ()))
    asked = HONEST | {"mean": np.zeros((2, 3)), "covariance": np.stack([np.eye(3)] * 2)}
    pins.check(one, asked)
    pins.check(one, asked | {"mean": np.ones((2, 3))})
    with pytest.raises(Refused, match=f"{name} of project_sites differs from its first value"):
        pins.check(one, asked | {name: asked[name] + 0.1})


def test_a_site_of_a_study_with_own_intercepts_tells_nothing_of_slopes(tmp_path):
    terms = terms_of(
        tmp_path, "breast_cancer", "[{method: bayes_logistic, by_site: intercept}]",
        task="classification", bounds="[]",
    )  # fmt: skip
    bounds = Bounds(terms, "fit", terms.plan.arms[0])
    one = Call(0, site_steps.project_sites, "sum", None, Arguments({}, ()))
    least = terms.plan.min_cell
    bounds.check(one, {"slopes": False, "least": least})
    with pytest.raises(Refused, match="slopes of project_sites differs from its settings"):
        bounds.check(one, {"slopes": True, "least": least})
    with pytest.raises(Refused, match=r"least is not its privacy\.min_cell"):
        bounds.check(one, {"slopes": False, "least": 1})


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0, 1e3, 1e16, np.nan])
@pytest.mark.parametrize("few", [1, 2, 4])
def test_no_origin_hides_a_level_of_few_patients_from_their_own_site(at, few):
    """With own coefficients the coordinator can solve for a site's cross-products. The origin from
    which a site counts the rows of a level is the coordinator's: at 0.5 no row has it.
    """
    x = np.random.default_rng(3).normal(size=(40, 2))
    y = (np.arange(40) % 2).astype(float)
    x[:, 1] = np.arange(40) < few
    rare = LabelledTable(x, y)
    with np.errstate(invalid="ignore"):
        assert not site_steps.partaking(rare, np.full(3, at), slopes=True, least=5)
    x[:, 1] = np.where(np.arange(40) < few, np.arange(40) % 2 + 1.0, 0.0)  # of three levels
    with np.errstate(invalid="ignore"):
        assert not site_steps.partaking(rare, np.full(3, at), slopes=True, least=5)


def test_a_site_takes_part_where_no_value_is_of_few_rows():
    rng = np.random.default_rng(4)
    ages, x = np.rint(rng.normal(60, 12, size=60)), rng.normal(size=(60, 3))
    x[:, 0], x[:, 1] = ages, np.arange(60) < 6
    enough = LabelledTable(x, (np.arange(60) % 2).astype(float))
    assert site_steps.partaking(enough, np.array([60.0, 0, 0, 0]), slopes=True, least=5)


@pytest.mark.parametrize(("arm", "kind", "step", "names"), [
    ("{method: bayes_logistic, by_site: all, site_effects: true}", "classification",
     site_steps.own_effects, ("shares", "mean", "covariance", "residual")),
    ("{method: bayes_cox, by_site: all, site_effects: true}", "survival",
     cox_steps.own_ratios, ("shares", "points", "mean", "covariance")),
    ("{method: bayes_net, strategy: virtual}", "classification",
     keep_own, ("precision", "shift", "ends")),
], ids=["own_effects", "own_ratios", "keep_own"])  # fmt: skip
def test_what_is_told_of_one_site_at_the_end_is_asked_once(tmp_path, arm, kind, step, names):
    """Effects of a site at other coefficients, and losses at other weights, would be new numbers of
    its rows for each question.
    """
    sample = "gbsg2" if kind == "survival" else "breast_cancer"
    terms = terms_of(tmp_path, sample, f"[{arm}]", task=kind, bounds="[]")
    pins = Pins(Bounds(terms, "fit", terms.plan.arms[0]), InMemory())
    one = Call(0, step, "sum", None, Arguments({}, ()))
    asked = {name: np.ones((1, 2)) for name in names}
    pins.check(one, asked)
    pins.check(one, asked)
    for name in names:
        with pytest.raises(Refused, match=f"{name} of {step.name} differs from its first value"):
            pins.check(one, asked | {name: asked[name] + 0.1})


def test_at_a_narrow_posterior_a_coordinator_that_lies_reads_whole_rows():
    """Why the page says so: of rows far from the plane where the log odds are 0 none counts."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(150, 2)), (rng.random(150) < 0.5).astype(float)
    fed = local([Host(f"s{k}", LabelledTable(x[k::3], y[k::3]), LOGISTIC.steps) for k in range(3)])
    honest = {"centre": np.zeros(2), "scale": np.ones(2), "share": 0.5, "damping": 1.0}
    fed.sum(steps.project, **honest, mean=np.zeros(0), covariance=np.zeros((0, 0)))
    found = 0
    for at in np.linspace(-3.0, 3.0, 40):
        mean, narrow = 3e3 * np.array([-at, 1.0, 0.0]), 1e-14 * np.eye(3)
        told = fed.sum(steps.project, **honest, mean=mean, covariance=narrow)
        one, two = told.squares
        if one > 1e-12 and one**2 < (1.0 + 1e-6) * two:
            row = told.precision[0, 1:] / told.precision[0, 0]
            found += np.abs(x - row).max(axis=1).min() < 1e-6
    assert found >= 2


def test_at_large_coefficients_scores_of_cox_differ_by_the_difference_of_two_records():
    """Why the page says so: one record outweighs each risk set; where two change places, the score
    changes by a multiple of their difference. One question has 100 points.
    """
    table = survival(150, 2, 1, tied=False)
    fed = local(
        [Host(f"s{k}", p, BAYES.steps) for k, p in enumerate(split(table, np.arange(150) % 3))]
    )
    angles = np.linspace(0.0, 0.4, 100)
    points = 100.0 * np.column_stack([np.cos(angles), np.sin(angles)])
    zero = np.zeros((100, 2))
    asked = {"spread": zero, "around": zero, "centre": np.zeros(2), "scale": np.ones(2)}
    told = fed.sum(cox_steps.expand_sites, **asked, points=points, ties="breslow", least=5)
    information = told.inner[:, :2, :2]
    score = told.inner[:, :2, 2] - np.einsum("gij,gj->gi", information, points)
    hard = np.flatnonzero(np.abs(information).max(axis=(1, 2)) < 0.05)
    moved = np.diff(score[hard], axis=0)
    moved = moved[np.abs(moved).max(axis=1) > 0.01]
    apart = (table.x[:, None] - table.x[None]).reshape(-1, 2)
    near = [min(np.abs(apart - m / k).max(axis=1).min() for k in range(1, 40)) for m in moved]
    assert sum(np.array(near) < 0.02) >= 2
