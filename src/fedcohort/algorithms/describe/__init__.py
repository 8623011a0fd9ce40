"""Descriptive statistics over sites: Table 1 by site and by group, histograms, correlations."""

from fedcohort.algorithms.describe import private
from fedcohort.algorithms.describe.model import Description
from fedcohort.algorithms.describe.program import bounds, fit, held
from fedcohort.algorithms.describe.settings import DescribeSettings
from fedcohort.data.describe import STEPS, describe_quantiles
from fedcohort.data.describe.bins import count_bins
from fedcohort.data.describe.groups import describe_by_group
from fedcohort.data.describe.pairs import sum_pairs
from fedcohort.protocol import Method, PrivateFits

EXACT = (*STEPS, describe_quantiles, describe_by_group, count_bins, sum_pairs)

METHOD = Method(
    name="describe",
    title="Table 1 by site and by group, histograms and correlations, small counts hidden",
    tasks=("survival", "classification", "regression", "clustering", "latent"),
    paper=(
        "Austin, Statistics in Medicine 28(25), 2009 (standardised differences); Hundepool et al., "
        "Statistical Disclosure Control, 2012"
    ),
    reveals=(
        "Of each site, once, its part of Table 1, also by group: rows, missing values, counts of "
        "levels, mean, standard deviation and quantiles; the site hides numbers of few patients "
        "first. As sums over all sites, counts of numbers between round edges, and products of "
        "columns. With differential privacy (dp) only one sum of counts and moments over all "
        "sites, with noise."
    ),
    unguarded=("Each site hides counts of few before it tells them (`privacy.disclosure.counts`)."),
    settings=DescribeSettings,
    fit=fit,
    model=Description,
    steps=(*EXACT, private.describe_privately),
    asks=lambda _: EXACT,
    bounds=bounds,
    private=PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        held=held,
    ),
    raw=True,
)

__all__ = ["METHOD", "DescribeSettings", "Description", "fit"]
