"""A site tells its part of Table 1 with one set of sites: two sets would tell a hidden count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedcohort.data import describe
from fedcohort.data.describe_groups import describe_by_group
from fedcohort.data.describe_pooled import sum_hidden
from fedcohort.data.variable import Variable
from fedcohort.protocol import Refused
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

LEVELS = ("I", "II", "III")
#: Rows of each level by site; of a, b and c fewer than five are III.
COUNTS = {"a": (30, 20, 2), "b": (41, 22, 3), "c": (35, 31, 4), "d": (52, 40, 12)}
GRADE = (Variable("grade", "category", LEVELS),)


def hosts():
    frames = {s: pd.DataFrame({"grade": np.repeat(LEVELS, n)}) for s, n in COUNTS.items()}
    return [Host(s, frame, describe.STEPS) for s, frame in frames.items()]


def pooled(fed):
    """Return the counts over all sites of Table 1."""
    (whole,) = [s for s in describe.describe(fed, GRADE).summaries if s.site is None]
    return np.array([np.nan if n is None else n for n in whole.counts])


def test_the_tables_of_all_sites_and_of_all_but_one_do_not_tell_what_that_one_hides():
    """Before, the second table was told, and its counts were those of all less the site's own."""
    fed = local(hosts(), secure="true")
    every = pooled(fed)
    assert every.tolist() == np.sum(list(COUNTS.values()), axis=0).tolist()
    for site, counts in COUNTS.items():
        found = None
        try:
            found = (every - pooled(fed.only([s for s in COUNTS if s != site]))).tolist()
        except Refused as error:
            assert "with the sites and settings" in str(error)
            assert "\n" not in str(error)
        assert found is None, f"{found} is what {site} has, {counts}"


def test_sites_that_are_asked_again_together_say_the_same():
    fed = local(hosts(), secure="true")
    first, again = pooled(fed), pooled(fed)
    assert first.tolist() == again.tolist()


@pytest.mark.parametrize("step", [describe.describe_columns, sum_hidden, describe_by_group])
def test_every_step_that_takes_what_sites_agreed_on_takes_it_once(step):
    assert {"also", "n_levels"} <= set(step.once)


@pytest.mark.parametrize("change", ["also", "centre", "columns"])
def test_another_question_at_the_same_sites_is_refused(change):
    fed = local(hosts(), secure="true").through(describe.Reading(GRADE).view)
    asked = {"n_levels": np.array([3]), "min_cell": 5, "also": np.full((1, 5), -1)}
    more = {"centre": np.zeros(0), "spread": np.zeros(0)}
    fed.sum(sum_hidden, **asked, **more)
    fed.sum(sum_hidden, **asked, **more)
    if change == "also":
        asked["also"] = asked["also"] + 60
    elif change == "centre":
        more["centre"] = np.zeros(1)
    else:
        turned = Variable("grade", "category", LEVELS[::-1])
        fed = fed.through(describe.Reading((turned,)).view)
    with pytest.raises(Refused, match=rf"{change}.* another than it was first"):
        fed.sum(sum_hidden, **asked, **more)
