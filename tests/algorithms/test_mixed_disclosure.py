"""What leaves a site in a fit of `mixed`: its sums tell of sites, and never of a few records."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from algorithms.mixed_cases import federation, fit, simulated
from fedcohort.algorithms.mixed import METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import DataError

SIZES = (30, 22, 14, 3, 1)


class Overheard:
    """A federation that keeps the sums of cross-products."""

    def __init__(self, fed, seen=None):
        self._fed, self.seen = fed, [] if seen is None else seen

    def __getattr__(self, name):
        return getattr(self._fed, name)

    def only(self, names):
        return Overheard(self._fed.only(names), self.seen)

    def awaiting(self, fewest=None):
        return Overheard(self._fed.awaiting(fewest), self.seen)

    def sum(self, step, **arguments):
        found = self._fed.sum(step, **arguments)
        if step.name == "products":
            self.seen.append((arguments["centre"], found.means))
        return found


def solved(parts, min_cell):
    """Return the sizes of sites and their means of covariates, from the sums of a fit alone.

    P = Σ s sᵀ and R = Σ n s sᵀ have P⁺R vⱼ = nⱼ vⱼ, and P vⱼ has the direction of sⱼ, whose first
    entry is nⱼ: as long as sites are no more than entries.
    """
    fed = Overheard(federation(parts))
    fit(parts, fed=fed, min_cell=min_cell)
    centre, (_, p, r) = fed.seen[0]
    sizes, vectors = np.linalg.eig(np.linalg.pinv(p, rcond=1e-11, hermitian=True) @ (r / -2))
    found = {}
    for n, v in zip(sizes.real, vectors.T.real, strict=True):
        if n > 0.5:
            s = p @ v
            found[round(n)] = centre + s[1:-1] / s[0]
    return found


def test_sizes_and_means_of_few_sites_can_be_solved_for_and_those_of_small_sites_are_not_there():
    parts = simulated(SIZES, 1.0, 4, p=5)
    for min_cell, sizes in ((5, SIZES[:3]), (2, SIZES[:4]), (1, SIZES)):
        found = solved(parts, min_cell)
        assert sorted(found, reverse=True) == list(sizes)
        for part in parts[: len(sizes)]:
            assert_allclose(found[len(part.y)], part.x.mean(axis=0), atol=1e-6)


def test_the_record_of_a_site_of_one_is_told_by_no_sum_unless_min_cell_allows_it():
    parts = simulated(SIZES, 1.0, 4, p=5)
    assert_allclose(solved(parts, 1)[1], parts[4].x[0], atol=1e-6)
    moved = [*parts[:4], LabelledTable(parts[4].x + 100.0, parts[4].y - 50.0)]
    told = [Overheard(federation(p)) for p in (parts, moved)]
    models = [fit(parts, fed=fed, min_cell=5) for fed in told]
    for one, other in zip(told[0].seen, told[1].seen, strict=True):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert (models[0].coefficients == models[1].coefficients).all()


def test_sites_left_out_are_counted_in_the_note_and_the_rest_is_the_fit_without_them():
    parts = simulated(SIZES, 1.0, 4)
    ours, without = fit(parts, min_cell=5), fit(parts[:3], min_cell=5)
    assert ours.note.endswith(
        "sites left out, with fewer than 5 records (min_cell), whose means would tell of so few: 2."
    )
    assert (ours.rows, ours.sites) == (66, 3)
    assert_allclose(ours.coefficients, without.coefficients, rtol=1e-12)
    with pytest.raises(DataError, match="every site has fewer than 5 records"):
        fit(parts[3:], min_cell=5)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_small_sites_take_part_in_fits_whose_sums_do_not_come_apart(family):
    parts = simulated((40, 50, 30, 4, 1), 1.0, 4, family)
    assert fit(parts, family, min_cell=5).rows == 125


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_all_replies_are_summed_and_none_has_a_row_for_each_record(family):
    parts = simulated((60, 40, 50), 0.8, 1, family)
    fed = federation(parts)
    fit(parts, family, fed=fed)
    for line in map(json.loads, fed.ledger.lines):
        assert line["verb"] == "sum"
        for field in line["fields"].values():
            assert np.prod(field["shape"], dtype=int) <= 3 * 4 * 4


def test_site_effects_leave_only_where_asked_and_the_method_says_so():
    parts = simulated((60, 40, 50), 0.8, 1)
    fed = federation(parts)
    fit(parts, fed=fed, site_effects=True)
    last = json.loads(fed.ledger.lines[-1])
    assert (last["step"], last["verb"]) == ("own_effect", "gather")
    said = METHOD.reveals_with
    assert "own effect" in said(METHOD.configure({"site_effects": True}))
    assert "own effect" not in said(METHOD.configure({}))
