"""Tables of many sites that are seen, or counted, at once: the same bits as one by one."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcohort as fc
from fedcohort.data.prepare import sketch, steps
from fedcohort.numerics import residuals
from fedcohort.protocol import DataError
from fedcohort.protocol.host import Host
from fedcohort.training.clusters.partition import labels


def _frames(n_sites, seed, gaps=True):
    rng = np.random.default_rng(seed)
    n = n_sites * 12
    table = pd.DataFrame(
        {
            "age": rng.normal(60, 9, n),
            "grade": rng.choice(["I", "II", "III"], n),
            "smoker": rng.integers(0, 2, n).astype(float),
            "time": rng.exponential(2, n) + 0.01,
            "event": rng.integers(0, 2, n),
            "hospital": np.repeat([f"h{k:02d}" for k in range(n_sites)], 12),
        }
    )
    if gaps:
        table.loc[rng.random(n) < 0.2, "age"] = np.nan
        table.loc[rng.random(n) < 0.2, "grade"] = None
    return table


def _bits(found):
    return [None if a is None else a.tobytes() for a in found]


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_a_site_sees_the_same_bits_alone_and_together_with_others(scale):
    cohort = fc.simulate(_frames(3, 0), sites="hospital", outcome=fc.Survival("time", "event"))
    design = fc.fit("cox", cohort, scale=scale, min_cell=1, time_grid="exact").run.design
    frames = list(cohort.frames.values())
    together = design.many(frames)
    assert together is not None
    assert [_bits(t) for t in together] == [_bits(design(f)) for f in frames]
    encoded = design.encoding.many(frames)
    assert [[_bits(x) for x in t] for t in encoded] == [
        [_bits(x) for x in design.encoding(f)] for f in frames
    ]


def test_levels_that_would_read_otherwise_beside_others_are_read_site_by_site():
    cohort = fc.simulate(_frames(3, 0), sites="hospital", outcome=fc.Survival("time", "event"))
    design = fc.fit("cox", cohort, min_cell=1, time_grid="exact").run.design
    first, *rest = cohort.frames.values()
    mixed = first.assign(grade=pd.Series([1, "I"] * 6, index=first.index, dtype=object))
    assert design.many([mixed, *rest]) is None
    assert design.many([first.assign(age=first["age"].astype("float32")), *rest]) is None
    assert design.many([first.drop(columns="age"), *rest]) is None


def test_a_view_is_made_once_for_many_small_sites(monkeypatch):
    asked = []
    shown = Host.show
    monkeypatch.setattr(Host, "show", lambda self, *a: (asked.append(self.name), shown(self, *a)))
    table = _frames(12, 1, gaps=False)
    fc.fit("cox", fc.simulate(table, sites="hospital", outcome=fc.Survival("time", "event")))
    assert sorted(asked) == sorted([f"h{k:02d}" for k in range(12)] * 2)


def test_a_wrong_value_names_its_site_and_row_though_sites_are_seen_together():
    table = _frames(12, 1, gaps=False)
    cohort = fc.simulate(table, sites="hospital", outcome=fc.Survival("time", "event"))
    cohort.frames["h07"].loc[:, "smoker"] = 3.0
    with pytest.raises(DataError, match=r"site 'h07'.*'smoker' is binary"):
        fc.fit("cox", cohort)


@given(seed=st.integers(0, 2**16), n=st.integers(0, 40), gaps=st.booleans())
def test_columns_counted_at_once_give_the_bits_of_each_counted_alone(seed, n, gaps):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(3, n)), 1)
    if gaps:
        x[rng.random(x.shape) < 0.3] = np.nan
    columns, centre = tuple(x), rng.normal(size=3)
    edges = np.sort(np.round(rng.normal(size=(3, 6)), 1), axis=1)
    edges[1, 4:] = np.inf
    edges[2] = np.inf

    def found():
        counted = [np.array(a, float) for a in steps._counted(columns)]
        return [*counted, *steps._deviations(columns, centre), sketch.count_between(columns, edges)]

    together = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "SMALL", -1)
        assert [a.tobytes() for a in together] == [a.tobytes() for a in found()]


@given(seed=st.integers(0, 2**16), given_=st.booleans())
def test_residuals_without_pivoting_are_those_with(seed, given_):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(40, 5))
    if given_:
        z[:, 4] = z[:, 0] - z[:, 1]
    inner = z.T @ z
    short = residuals.residual_parts(inner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(residuals, "_all_independent", lambda corr: None)
        full = residuals.residual_parts(inner)
    for a, b in zip(short, full, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**16), rounds=st.integers(1, 4))
def test_a_row_follows_its_path_whatever_was_searched_before(seed, rounds):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(30, 2))
    path, moves = rng.normal(size=(rounds, 3, 2)), rng.random((rounds - 1, 3, 3)) < 0.5

    def nearest(at):
        return ((z[:, None] - at) ** 2).sum(axis=2).argmin(axis=1)

    expected = nearest(path[0])
    for at, may in zip(path[1:], moves, strict=True):
        expected = [
            int(n) if may[old, n] else old for old, n in zip(expected, nearest(at), strict=True)
        ]
    for _ in range(2):  # the second time from memory
        assert labels(z, path, moves).tolist() == list(expected)
