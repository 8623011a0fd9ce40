"""A site tells its part of Table 1 with one set of sites: two sets would tell a hidden count."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fedcohort.data import describe
from fedcohort.data.describe.agreed import Agreed, shown_sums, tell_cells
from fedcohort.data.describe.groups import describe_by_group
from fedcohort.data.describe.pooled import sum_hidden
from fedcohort.data.describe.shown_number import HIDDEN
from fedcohort.data.encode import Encoded
from fedcohort.data.variable import Variable
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.protocol import Refused, Site
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.runtime.masked.end import ANY, FEW, SumRule, check_hidden

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
    more = {"own": agreed.own, "some": agreed.some, "centre": none, "spread": none}
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
    with pytest.raises(Refused, match=rf"{change}.* differs from its first value"):
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
    with pytest.raises(Refused, match="The sum could reveal a hidden count"):
        fed.sum(sum_hidden, **asked | {"closed": closed}, **more | {"some": some})


@pytest.mark.parametrize("lie", ["closed", "own", "some", "names", "few"])
def test_no_lie_of_the_coordinator_gives_the_count_that_one_site_hides(lie):
    """c alone has fewer than five III. Whatever is said of a, b and d, its 4 is in no sum alone."""
    frames = {s: pd.DataFrame({"grade": np.repeat(LEVELS, n)}) for s, n in COUNTS.items()}
    for s in "abd":
        frames[s] = pd.DataFrame({"grade": np.repeat(LEVELS, (30, 20, 10))})
    steps = describe.STEPS

    def ask(closed=None, **changed):
        fed = local([Host(s, f, steps) for s, f in frames.items()], secure="true")
        fed, asked, more = asked_of(fed)
        asked |= {} if closed is None else {"closed": closed}
        return fed.sum(sum_hidden, **asked, **(more | changed)).counts[0].tolist()

    _, asked, more = asked_of(local([Host(s, f, steps) for s, f in frames.items()], secure="true"))
    assert ask() == [0, 0, 51, 14]  # of c and of the one that hides II and III with it
    closed = more["own"].copy()
    if lie == "closed":  # d hides III alone: that follows from its rows, and c's from the sum
        closed[SITES.index("d"), 0, 3] = True
        assert ask(closed) == [0, 0, 0, 0]
        closed[SITES.index("a"), 0, [0, 3]] = True  # as a does not say that nobody is missing
        assert ask(closed) == [0, 0, 0, 14 + 10]
        return
    own, some = more["own"].copy(), more["some"].copy()
    if lie == "own":  # that c's is no count to be hidden
        own[SITES.index("c")] = False
    if lie == "some":
        some[SITES.index("c")] = False
    if lie == "few":
        closed[SITES.index("c")] = False
    with pytest.raises(Refused, match="The sum could reveal a hidden count"):
        if lie == "names":  # a site that is not in the sum is said to hide with it
            fed = local([Host(s, f, steps) for s, f in frames.items()], secure="true")
            inside = fed.through(describe.Reading(GRADE).view)
            lines = (np.concatenate([x, x[[2]]]) for x in (closed, own, some))
            false = dict(zip(("closed", "own", "some"), lines, strict=True))
            inside.sum(sum_hidden, **asked | {"marks": np.append(asked["marks"], 7)} | more | false)
        else:
            ask(closed, own=own, some=some)


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
    assert "fewer than three hospitals, or sums that are not masked" in found.note
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


# what the sums tell ---------------------------------------------------------------------------


def pinned(closed, own, some, told):
    """Return how many counts that sites hide by their rule follow from the sums; one variable.

    Unknown is what each site hides above 0. Known are its rows and what it shows, so the sum of
    its unknowns, and of each told cell the sum over sites. A count follows where it adds nothing
    to the rank of these equations.
    """
    arcs = np.argwhere((closed & some)[:, :-1])
    lines = [arcs[:, 0] == s for s in range(len(closed))]
    lines += [arcs[:, 1] == i for i in np.flatnonzero(told[:-1])]
    if told[-1]:  # how many values are known where the mean is hidden
        inside = (closed & some)[:, -1]
        lines.append((arcs[:, 1] == 1) & inside[arcs[:, 0]])
    known = np.array(lines, float)
    rank = np.linalg.matrix_rank(known)
    unit = np.eye(len(arcs))
    return sum(
        np.linalg.matrix_rank(np.vstack([known, unit[a]])) == rank
        for a, (s, i) in enumerate(arcs.tolist())
        if own[s, i] and told[i]
    )


def random_states(seed, cells=4):
    """Return what each site would say of one variable, and its rows."""
    rng = np.random.default_rng(seed)
    told, number = {}, bool(seed % 2)
    for s in range(rng.integers(3, 9)):
        n = int(rng.choice([rng.integers(1, 12), rng.integers(12, 90)]))
        w = 1 if number else cells
        p = rng.dirichlet(np.full(w + 1, rng.choice([0.4, 3.0])))
        codes = rng.choice(w + 1, n, p=p) - 1
        x = np.where(codes < 0, np.nan, rng.normal(size=n) * rng.choice([1, 30], n, p=[0.9, 0.1]))
        data = Encoded((x,), ()) if number else Encoded((), (codes,))
        told[f"s{s}"] = tell_cells.run(
            Site("", data, None, ()), n_levels=np.array([w] * (not number)),
            min_cell=5,
        )  # fmt: skip
    return told


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_no_hidden_count_follows_from_the_sums_that_an_honest_coordinator_asks_for(first):
    told_at_all = 0
    for seed in range(first, first + 100):
        agreed = Agreed.of(random_states(seed), 5)
        told = agreed.shown()[0]
        told_at_all += int(told.sum())
        assert not pinned(agreed.closed[:, 0], agreed.own[:, 0], agreed.some[:, 0], told)
    assert told_at_all > 100


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_nor_from_those_where_a_hostile_one_says_what_others_hide(first):
    """It may have any site hide any further cells: those of one, so that another's follow."""
    weak = 0
    for seed in range(first, first + 100):
        honest, rng = Agreed.of(random_states(seed), 5), np.random.default_rng(seed)
        own, some = honest.own, honest.some
        closed = own | (rng.random(own.shape) < rng.choice([0.1, 0.4, 0.8]))
        told = shown_sums(closed, own, some)[0]
        assert not pinned(closed[:, 0], own[:, 0], some[:, 0], told)
        summed = (closed & some).sum(axis=0)[0] > 1  # two sites give: not enough
        weak += pinned(closed[:, 0], own[:, 0], some[:, 0], summed)
    assert weak > 2


def test_what_was_agreed_is_read_as_it_was_written():
    agreed = Agreed.of(random_states(4), 5)
    again = Agreed.from_dict(json.loads(json.dumps(agreed.to_dict())))
    assert (again.sites, again.small) == (agreed.sites, agreed.small)
    for name in ("closed", "own", "some"):
        np.testing.assert_array_equal(getattr(again, name), getattr(agreed, name))


# means over all sites ---------------------------------------------------------------------------


def many_hospitals(seed, values):
    """Return 36 hospitals of 1 to some 400 rows with one column of numbers."""
    rng = np.random.default_rng(seed)
    share = rng.lognormal(0, 1.3, 36)
    x, at = values(rng, 2400), rng.choice(36, 2400, p=share / share.sum())
    return {f"h{i:02}": pd.DataFrame({"x": x[at == i]}) for i in range(36) if (at == i).any()}


COLUMNS = {
    "mostly zeros": lambda r, n: np.where(r.random(n) < 0.8, 0.0, np.ceil(r.exponential(4, n))),
    "whole numbers": lambda r, n: r.poisson(2.0, n).astype(float),
    "long tails": lambda r, n: r.lognormal(0, 1.5, n),
    "often missing": lambda r, n: np.where(r.random(n) < 0.7, np.nan, r.normal(50, 9, n)),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_means_over_36_hospitals_are_shown_and_are_those_of_all_patients(kind):
    """They were hidden where one hospital has few values other than 0, and low with long tails."""
    for seed in range(2):
        frames = many_hospitals(seed, COLUMNS[kind])
        fed = local([Host(s, f, describe.STEPS) for s, f in frames.items()])
        pooled = pd.concat(frames.values())["x"].dropna()
        (one,) = [
            s for s in describe.describe(fed, (Variable("x", "number"),)).summaries if not s.site
        ]
        assert one.mean is not None
        error = pooled.std() / np.sqrt(len(pooled))
        assert abs(one.mean - pooled.mean()) < 0.75 * error


def test_a_mean_that_would_tell_how_often_a_rare_value_is_at_few_sites_stays_hidden():
    """Of two sites nothing but three ones of 120 values is not shown: their sum would be these."""
    frames = {s: np.r_[np.ones(k), np.zeros(60 - k)] for s, k in (("a", 1), ("b", 2))}
    frames |= {s: np.r_[np.ones(30), np.zeros(30)] for s in "cd"}
    hosts = [Host(s, pd.DataFrame({"x": x}), describe.STEPS) for s, x in frames.items()]
    found = describe.describe(local(hosts, secure="true"), (Variable("x", "number"),)).summaries
    assert {s.site: s.mean is not None for s in found} == {
        None: False, "a": False, "b": False, "c": True, "d": True,
    }  # fmt: skip
