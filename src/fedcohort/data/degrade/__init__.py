"""Training rows of simulated sites made worse on purpose: good and bad nodes.

GenoMed4All D6.2, section 6.6 and chapter 11: good nodes hold many complete rows, bad nodes few rows
of which a share of the entries is missing, or replaced by noise. Nolte et al. (2023), section 3.4:
each client permutes 20 % of its target values before training. Its test rows are outside the
clients and stay as they are; D6.2 does not say, and here they stay too.

At a site of n rows and p features, in this order, with r(x) = x rounded, halves up:

    rows         k or r(share·n) rows stay, spread evenly over events or classes; order kept
    swap         outcomes of r(share·n) rows, permuted at random among them
    flip         r(share·n) rows get another class; of survival, event and censored change places
    noise        numbers get N(0, (noise·s)²), s the standard deviation over all sites
    replace      r(share·entries) of the known entries become a level that occurs, or a number
                 between the smallest and the largest of all sites, drawn evenly
    units        columns are multiplied by a factor
    missing      r(share·entries) of the known entries are removed: at random; by value, in each
                 column, the chance of an entry in proportion to its rank; or by column, all of
                 r(share·p) columns

Each kind at each site has its own generator, from the seed, the kind and the site's name, and takes
the first of a permutation. So what one site loses does not depend on the others, and 20 % missing
entries are among the 40 % of another scenario. Numbers stay within the dictionary's `range`, whole
ones whole, unless a factor changes them.

It runs on tables of one process before any fit: nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from fedcohort.data.degrade.items import HOW, RANDOM, Degradation, Given, generator
from fedcohort.data.degrade.rows import SiteRows, is_number
from fedcohort.data.outcome import Continuous, Count, Outcome
from fedcohort.data.variable import Variable
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError

#: Roles of an outcome's columns that can be converted.
MEASURED = ("time", "entry", Continuous.type, Count.type)

__all__ = ["HOW", "RANDOM", "Degradation", "Given", "chosen", "degrade"]


def chosen(items: Sequence[Degradation], names: Sequence[str], seed: int) -> dict[str, Degradation]:
    """Return each degraded site's item. Sites are drawn among those that no item names.

    Raises
    ------
    DataError : a name is unknown or in two items, or more sites are drawn than there are.
    """
    found: dict[str, Degradation] = {}
    for item in items:
        for site in item.sites if isinstance(item.sites, tuple) else ():
            if site not in names:
                raise DataError(f"degrade: there is {known_name('site', site, names)}")
            if site in found:
                raise DataError(f"degrade: site {site!r} stands twice. Put all in one item.")
            found[site] = item
    rng = generator(seed, "sites", "")
    for item in items:
        if isinstance(item.sites, int):
            free = [s for s in sorted(names) if s not in found]
            if item.sites > len(free):
                raise DataError(
                    f"degrade: {item.sites} sites are to be drawn, and {len(free)} are left of "
                    f"{len(names)}. Draw fewer."
                )
            drawn = rng.permutation(len(free))[: item.sites]
            found |= {free[i]: item for i in drawn}
    return found


def degrade(
    frames: Mapping[str, pd.DataFrame],
    items: Sequence[Degradation],
    swap: float,
    features: Iterable[Variable],
    outcome: Outcome | None,
    *,
    seed: int,
    sites_seed: int,
) -> tuple[dict[str, pd.DataFrame], dict[str, Given]]:
    """Return the sites' tables made worse, and what each site was given.

    Parameters
    ----------
    frames : training rows by site.
    swap : share of each site's rows whose outcomes are permuted.
    features : columns that may change; `outcome` names those of the outcome.
    seed : of all draws but that of the sites, which is from `sites_seed`.

    Raises
    ------
    DataError : a site or column is unknown, a column has no numbers to convert, labels cannot be
        flipped, or there is no outcome to swap or flip.
    """
    known = {v.name: v for v in features}
    which = chosen(items, list(frames), sites_seed)
    _check(items, swap, known, outcome)
    whole = pd.concat(list(frames.values()), ignore_index=True)
    out: dict[str, pd.DataFrame] = {}
    told: dict[str, Given] = {}
    for site, frame in frames.items():
        frame = frame.reset_index(drop=True)
        one = SiteRows(frame, site, seed, known, outcome, whole)
        item = which.get(site)
        if item is not None and item.rows is not None:
            one.keep(item.rows)
        one.given.rows = len(one.frame)
        one.swap(swap)
        if item is not None:
            one.given.degraded = True
            one.flip(item.flip)
            one.given.entries = sum(int(one.frame[v.name].notna().sum()) for v in one.known)
            one.add_noise(item.noise)
            one.replace(item.replace)
            one.convert(item.units)
            one.remove(item)
        one.given.known, one.given.intact = one.left_of(frame)
        out[site], told[site] = one.frame, one.given
    return out, told


def _check(
    items: Sequence[Degradation],
    swap: float,
    known: Mapping[str, Variable],
    outcome: Outcome | None,
) -> None:
    if outcome is None and (swap or any(i.flip for i in items)):
        raise DataError("there is no outcome to swap or flip; leave these keys out.")
    if outcome is not None and outcome.is_number and any(i.flip for i in items):
        raise DataError(
            f"degrade: the outcome {outcome.label!r} is a number, which has no label to flip. Use "
            f"swap_outcome, which permutes values."
        )
    taken = {} if outcome is None else outcome.roles
    for item in items:
        for name in item.columns:
            if name not in known:
                raise DataError(f"degrade: there is {known_name('feature', name, known)}")
        for name in item.units:
            if name in taken:
                _check_unit(name, taken[name], item.units[name])
                continue
            if name not in known:
                raise DataError(f"degrade: there is {known_name('column', name, known)}")
            if not is_number(known[name]):
                raise DataError(f"degrade: column {name!r} holds no numbers to convert.")


def _check_unit(name: str, role: str, factor: float) -> None:
    """Refuse a factor of an outcome's column that leaves no such outcome."""
    if role not in MEASURED:
        raise DataError(
            f"degrade: column {name!r} of the outcome holds no numbers to convert. Use flip."
        )
    if role == Count.type and factor != int(factor):
        raise DataError(
            f"degrade: {factor:g} times the counts of {name!r} are no counts. Give a whole factor."
        )
