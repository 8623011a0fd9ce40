import numpy as np
import pytest
from numpy.testing import assert_allclose
from statsmodels.stats.proportion import proportion_confint

from fedcohort.metrics.uncertainty import epistemic_share, exact_interval, inside


@pytest.mark.parametrize(("count", "n"), [(0, 12), (12, 12), (100, 110), (1, 3), (1, 1)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_interval_of_a_share_is_statsmodels_clopper_pearson(count, n, level):
    expected = proportion_confint(count, n, alpha=1 - level, method="beta")
    assert_allclose(exact_interval(count, n, level), expected, rtol=1e-10, atol=1e-12)


def test_an_outcome_at_an_end_is_inside_its_interval():
    ends = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    assert inside(np.array([0.0, 1.0, 1.1, -0.1]), ends).tolist() == [True, True, False, False]


def test_the_share_of_the_model_is_not_known_where_the_variance_is_infinite_or_0():
    parts = np.array([[1.0, 0.0, np.inf, 0.0], [3.0, 2.0, np.inf, 0.0]])
    assert_allclose(epistemic_share(parts), [0.25, 0.0, np.nan, np.nan])
