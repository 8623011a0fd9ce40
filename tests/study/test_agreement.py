"""The metric `agreement`: whose clusters are those of pooled data, and how sure that is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedcohort.study.results.outcomes import Found, with_agreement
from fedcohort.study.results.rows import NO_MODEL

N, DRAWS = 40, 25
rng = np.random.default_rng(5)
POOLED = rng.integers(0, 3, N)
NEAR = np.where(rng.random(N) < 0.2, rng.integers(0, 3, N), POOLED)
OWN = {"a": rng.integers(0, 2, N), "b": NEAR}
WEIGHTS = {r: rng.multinomial(N, np.full(N, 1 / N), DRAWS) for r in (0, 1)}


def piece(scope: str, labels: dict[str, Any], rows: list[dict[str, Any]], repeat: int = 0) -> Found:
    """Return what one arm gave."""
    told = {"rows": rows, "labels": {k: v.tolist() for k, v in labels.items()}}
    told["draws"] = {"silhouette": [0.5] * DRAWS}
    arm: Any = SimpleNamespace(scope=scope)
    return Found(arm, "natural", repeat, told)


def row(site: str | None, **more: Any) -> dict[str, Any]:
    return {"site": site, "metrics": {"silhouette": 0.5}, **more}


def drawn(labels, repeat=0):
    """Return scikit-learn's index of each draw, of rows that are repeated."""
    rows = [np.repeat(np.arange(N), w) for w in WEIGHTS[repeat]]
    return np.array([adjusted_rand_score(POOLED[r], labels[r]) for r in rows])


def agreed(*pieces: Found) -> list[dict[str, Any]]:
    whole = [piece("centralised", {"all": POOLED}, [row(None)], r) for r in (0, 1)]
    found = with_agreement([*whole, *pieces], WEIGHTS.__getitem__)
    for one in found[:2]:
        assert "agreement" not in one.found["draws"]
    return [dict(one.found) for one in found[2:]]


def test_the_draws_are_scikit_learns_index_of_the_rows_repeated_in_each_repeat_its_own():
    each = [piece("sites", {"all": NEAR}, [row(None), row("a")], r) for r in (0, 1)]
    for repeat, found in enumerate(agreed(*each)):
        whole, site = found["rows"]
        assert_allclose(whole["metrics"]["agreement"], adjusted_rand_score(POOLED, NEAR))
        assert "agreement" not in site["metrics"]
        assert_allclose(found["draws"]["agreement"], drawn(NEAR, repeat), atol=1e-12)
        assert found["draws"]["silhouette"] == [0.5] * DRAWS


def test_the_lower_bound_is_the_mean_of_hospitals_and_one_without_clusters_sees_one_group():
    rows = [row("a"), row("b"), row("c", note=NO_MODEL), row(None)]
    (found,) = agreed(piece("isolated", OWN, rows))
    want = [adjusted_rand_score(POOLED, OWN[s]) for s in ("a", "b")] + [0.0]
    assert_allclose([r["metrics"]["agreement"] for r in found["rows"]], [*want, np.mean(want)])
    each = [drawn(OWN["a"]), drawn(OWN["b"]), np.zeros(DRAWS)]
    assert_allclose(found["draws"]["agreement"], np.mean(each, axis=0), atol=1e-12)
