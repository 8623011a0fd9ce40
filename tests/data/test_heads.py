"""The distribution that the dictionary gives each column, and settings that change it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from data_cases import federation, scatter
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.prepare import Design, chosen, fit_design, heads_from, plain_heads
from fedcohort.protocol.errors import SettingError

VARIABLES = {
    "dose": {"type": "number", "range": [0.5, None]},
    "shift": {"type": "number"},
    "share": {"type": "number", "range": [0, 1]},
    "nodes": {"type": "integer", "range": [0, 90]},
    "weight": {"type": "integer", "range": [20, 300]},
    "score": {"type": "integer"},
    "sex": {"type": "binary"},
    "smoker": {"type": "binary", "levels": ["no", "yes"]},
    "grade": {"type": "category", "levels": ["I", "II", "III"]},
}


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "dose": rng.lognormal(size=n) + 0.5,
            "shift": rng.normal(size=n),
            "share": rng.random(n),
            "nodes": rng.poisson(rng.gamma(1.0, 5.0, n)),
            "weight": rng.normal(75, 4, n).round(),
            "score": rng.integers(-5, 6, n),
            "sex": rng.integers(2, size=n),
            "smoker": rng.choice(["no", "yes"], n),
            "grade": rng.choice(["I", "II", "III"], n),
        }
    )


def design(**options):
    dictionary = Dictionary.from_dict(VARIABLES)
    return fit_design(federation(scatter(table(), 3)), dictionary, None, **options)


def test_heads_follow_the_dictionary():
    heads = {h.name: h for h in design(impute="none").heads}
    assert {name: h.kind for name, h in heads.items()} == {
        "dose": "lognormal", "shift": "normal", "share": "normal", "nodes": "negbinomial",
        "weight": "normal", "score": "normal", "sex": "bernoulli", "smoker": "categorical",
        "grade": "categorical",
    }  # fmt: skip
    assert heads["grade"].at == (8, 9)
    assert {name for name, h in heads.items() if h.whole} == {"nodes", "weight", "score"}
    assert (heads["nodes"].low, heads["nodes"].high) == (0.0, 90.0)
    assert (heads["dose"].low, heads["dose"].high) == (0.5, np.inf)


@pytest.mark.parametrize("scale", ["none", "standard", "minmax"])
@pytest.mark.parametrize("impute", ["none", "indicator"])
def test_heads_cover_x_and_undo_its_scale(scale, impute):
    found = design(scale=scale, impute=impute)
    frame = table()
    if impute == "indicator":
        frame.loc[:9, "dose"] = np.nan
    x = found.matrix(frame)
    heads = found.heads
    assert sorted(at for h in heads for at in h.at) == list(range(len(found.features)))
    for name in ("weight", "nodes", "sex"):
        h = next(h for h in heads if h.name == name)
        limits = next((c.low, c.high) for c in found.columns if c.name == name)
        there = frame[name] if limits == (None, None) else np.clip(frame[name], *limits)
        assert_allclose(h.shift + h.scale * x[:, h.at[0]], there, atol=1e-9)


def test_a_design_keeps_its_heads_when_it_is_saved():
    found = design()
    assert Design.from_json(found.to_json()).heads == found.heads


def test_a_setting_changes_heads():
    heads = design(impute="none").heads
    assert chosen(heads, ("normal",)) == ()
    assert chosen(heads, ("dictionary",)) == heads
    changed = {h.name: h.kind for h in chosen(heads, ("grade=ordinal", "nodes=poisson"))}
    assert (changed["grade"], changed["nodes"], changed["dose"]) == (
        "ordinal", "poisson", "lognormal",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("grad=ordinal", "grade"),
        ("grade=poisson", "has levels; it can be categorical or ordinal"),
        ("sex=poisson", "is binary"),
        ("shift=lognormal", "no lowest value of 0 or above"),
        ("dose=poisson", "not 'integer'"),
        ("dose=gamma", "kind"),
        ("dose", "'column=kind'"),
    ],
)
def test_a_kind_that_a_column_cannot_have_is_one_clear_line(asked, words):
    with pytest.raises(SettingError, match=words) as error:
        chosen(design(impute="none").heads, (asked,))
    assert "\n" not in str(error.value)


def test_plain_heads_are_the_heads_without_names():
    heads = design().heads
    text = json.dumps(plain_heads(heads), allow_nan=False)
    assert heads_from(json.loads(text)) == tuple(replace(h, name="") for h in heads)
