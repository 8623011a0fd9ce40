"""A site tells its part of Table 1 with one set of sites: two sets would tell a hidden count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedcohort.data import describe
from fedcohort.data.describe_groups import describe_by_group
from fedcohort.data.describe_pooled import Agreed, sum_hidden, tell_cells
from fedcohort.data.shown_number import HIDDEN
from fedcohort.data.variable import Variable
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.protocol import Refused
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.runtime.masked_end import ANY, FEW, SumRule, check_hidden

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
    assert {"marks", "closed", "n_levels"} <= set(step.once)


def asked_of(fed):
    """Return the sites through the view of Table 1, and what an honest coordinator asks of them."""
    inside, n = fed.through(describe.Reading(GRADE).view), np.array([3])
    told = inside.gather(tell_cells, n_levels=n, min_cell=5)
    agreed = Agreed.of(told, 5)
    none = np.zeros(0)
    more = {"some": agreed.some, "centre": none, "spread": none}
    return inside, {"n_levels": n, "min_cell": 5, **agreed.asked}, more


@pytest.mark.parametrize("change", ["closed", "centre", "columns"])
def test_another_question_at_the_same_sites_is_refused(change):
    fed, asked, more = asked_of(local(hosts(), secure="true"))
    fed.sum(sum_hidden, **asked, **more)
    fed.sum(sum_hidden, **asked, **more)
    if change == "closed":
        asked["closed"] = np.ones_like(asked["closed"])
    elif change == "centre":
        more["centre"] = np.zeros(1)
    else:
        turned = Variable("grade", "category", LEVELS[::-1])
        fed = fed.through(describe.Reading((turned,)).view)
    with pytest.raises(Refused, match=rf"{change}.* another than it was first"):
        fed.sum(sum_hidden, **asked, **more)


# what the coordinator says of other sites -------------------------------------------------------

SITES = tuple(sorted(COUNTS))


def lines(**hides):
    """Return lines of `Agreed` in which these sites hide these cells of missing, I, II, III."""
    closed, some = np.zeros((4, 1, 5), bool), np.zeros((4, 1, 5), bool)
    some[:, 0, 1:4] = True
    for site, cells in hides.items():
        closed[SITES.index(site), 0, list(cells)] = True
    return closed, some


@pytest.mark.parametrize("site", "abc")
def test_a_coordinator_that_lies_of_what_the_others_hide_gets_no_sum(site):
    """It said that nobody but one site hides a cell, and the sum was that site's hidden count."""
    fed, asked, more = asked_of(local(hosts(), secure="true"))
    closed, some = lines(**{site: (2, 3)})  # a, b and c hide III, and II with it
    with pytest.raises(Refused, match="could be alone in it"):
        fed.sum(sum_hidden, **asked | {"closed": closed}, **more | {"some": some})


@pytest.mark.parametrize("lie", ["closed", "some", "names", "few"])
def test_no_lie_of_the_coordinator_gives_the_count_that_one_site_hides(lie):
    """c alone has fewer than five III. Whatever is said of a, b and d, its 4 is in no sum alone."""
    frames = {s: pd.DataFrame({"grade": np.repeat(LEVELS, n)}) for s, n in COUNTS.items()}
    for s in "ab":
        frames[s] = pd.DataFrame({"grade": np.repeat(LEVELS, (30, 20, 0))})
    frames["d"] = pd.DataFrame({"grade": np.repeat(LEVELS, (50, 40, 0))})
    steps = describe.STEPS
    fed = local([Host(s, f, steps) for s, f in frames.items()], secure="true")
    fed, asked, more = asked_of(fed)
    honest = fed.sum(sum_hidden, **asked, **more).counts[0]
    assert honest[3] == 0  # nobody else has one: even honest coordinators are not told
    fed = local([Host(s, f, steps) for s, f in frames.items()], secure="true")
    fed = fed.through(describe.Reading(GRADE).view)
    closed, some = asked["closed"].copy(), more["some"].copy()
    if lie == "closed":
        closed[SITES.index("d"), 0, :4] = True  # d hides what it has: none of III
        got = fed.sum(sum_hidden, **asked | {"closed": closed}, **more).counts[0]
        assert got[3] == 0
        return
    if lie == "some":
        closed[SITES.index("d"), 0, :4] = some[SITES.index("d"), 0, :4] = True
    if lie == "names":  # a site that is not in the sum is said to hide with it
        asked["marks"] = np.append(asked["marks"], 7)
        closed, some = (np.concatenate([x, x[[2]]]) for x in (closed, some))
    if lie == "few":
        closed[SITES.index("c")] = False
    with pytest.raises(Refused, match="could be alone in it"):
        fed.sum(sum_hidden, **asked | {"closed": closed}, **more | {"some": some})


def test_a_false_line_hides_more_of_a_site_and_never_less():
    asked = asked_of(local(hosts(), secure="true"))[1]
    for value in (False, True):
        one = local(hosts(), secure="true").through(describe.Reading(GRADE).view)
        closed = np.full_like(asked["closed"], value)
        told = one.gather(describe.describe_columns, **asked | {"closed": closed})
        for site, counts in COUNTS.items():
            shown = told[site].levels[0]
            assert (shown[hidden(np.array([0, *counts]), 5)[1:]] == HIDDEN).all()
            assert (shown == HIDDEN).all() or not value


# sums that hide nobody ----------------------------------------------------------------------


@pytest.mark.parametrize(("names", "secure"), [("ab", "auto"), ("abcd", "false")])
def test_where_no_sum_hides_a_site_what_it_hides_is_in_none(names, secure):
    """Two sites, or sums without masks: the coordinator's program saw each one's hidden counts."""
    few = [h for h in hosts() if h.name in names]
    fed = local(few, secure=secure)
    found = describe.describe(fed, GRADE)
    assert found.agreed is None
    by = {s.site: s for s in found.summaries}
    for site in {*names} & {*"abc"}:
        assert by[site].counts[2] is None  # as by its own rule
    assert by[None].counts[2] is None
    assert by[None].rows == sum(sum(COUNTS[s]) for s in names)
    assert "sum_hidden" not in "".join(fed.ledger.lines)


@pytest.mark.parametrize(("names", "secure"), [("ab", "auto"), ("abcd", "false")])
def test_such_a_sum_is_refused_to_a_program_that_asks_for_it(names, secure):
    _, asked, more = asked_of(local(hosts(), secure="true"))
    fed = local([h for h in hosts() if h.name in names], secure=secure)
    with pytest.raises(Refused, match="under masks alone"):
        fed.through(describe.Reading(GRADE).view).sum(sum_hidden, **asked, **more)


def test_a_node_refuses_it_without_masks_whatever_the_study_says():
    for plain in (ANY, FEW):
        rule = SumRule(plain, lambda: None, is_few=lambda request: True)
        with pytest.raises(Refused, match="under masks of 3 sites or more alone"):
            check_hidden("a", rule, sum_hidden, None)
    check_hidden("a", rule, describe.describe_columns, None)
    check_hidden("a", SumRule(ANY, lambda: None, rehearsed=True), sum_hidden, None)
