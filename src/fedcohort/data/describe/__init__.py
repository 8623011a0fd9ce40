"""Table 1: description of columns at each site, and over all sites."""

from fedcohort.data.describe.agreed import OTHERS
from fedcohort.data.describe.summary import Summary
from fedcohort.data.describe.table import (
    STEPS,
    Reading,
    TableOne,
    by_site,
    describe,
    describe_columns,
    describe_quantiles,
    variables_of,
)

__all__ = [
    "OTHERS",
    "Summary",
    "Reading",
    "STEPS",
    "TableOne",
    "by_site",
    "describe",
    "describe_columns",
    "describe_quantiles",
    "variables_of",
]
