"""Gradient boosting over sites: the trees of the pooled table, from sums of histograms.

Friedman, Annals of Statistics 29(5), 2001; Chen and Guestrin, "XGBoost", KDD 2016. Each round grows
a tree, or one for each class, from the gradients g and hessians h of the loss at the margins F of
all rows (`objectives`), and adds η times its leaves' weights to F. The covariates' bins come from
one grid of quantiles over all sites (`data.binning`). A level's histograms of (Σg, Σh, rows) by
node, covariate and bin are one sum over sites; the coordinator chooses the splits
(`numerics.trees.splits`). g and h are rounded to multiples of 2^-b, so sums are exact: the trees
do not depend on how rows are divided among sites, bit for bit. With a `min_cell` of 1 they are
those of the pooled table; with a larger one groups of bins have m rows or more (below), which one
site alone does not need.

cox: before each tree, one more sum gives Σ e^F of those who leave at each time, and the coordinator
returns d/S₀ (Breslow). weibull needs no such sum; a grid of times tells once how far its curves
are known.

Revealed, only as sums over all sites: `data.binning`, once; `Begun`, once; of survival the grid of
times, once; for cox `Risks` for each tree; for each round `Root`, and for each level `Numbers` and
`Sums`. With a `min_cell` of m above 1, every group of bins has at least max(m, 10) rows, or none,
in each node and in its sibling, so no Σg or Σh, nor a difference of a node and its child, is over
fewer. In each interval of cox at least m training rows leave. Sites draw a round's rows in secret
(`steps`): sums over known positions could be solved for each row. Sites learn all splits, and the
leaves' values.

Not protected: `Numbers` may count fewer rows. At the first margin Σg tells how many rows of a group
are of a class; a group of one class shows it of all its rows. Sums are exact, and the coordinator
knows the margin of each cell of bins, so the sums of many rounds are equations in the numbers of
rows by cell and class. Together they can have one solution in cells of few rows
(tests/algorithms/test_boosting_attack.py); more bits in sums than in rows leave no other way out
than noise (`private`). A coordinator that departs from this program can send moves, ends or edges
that isolate a row over all sites: a site checks their form (`arguments`), and not whether they
follow from the sums, which it does not know.

Other strategies, which are not lossless: `proposals` (top-s) and `local` (bagging, cyclic).
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.algorithms.boosting import private
from fedcohort.algorithms.boosting.booster import Booster, least_of
from fedcohort.algorithms.boosting.explaining import explained
from fedcohort.algorithms.boosting.growth import (
    Tree,
)
from fedcohort.algorithms.boosting.model import BoostedModel
from fedcohort.algorithms.boosting.response import Objective
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.algorithms.boosting.steps import (
    Begun,
    begin,
)
from fedcohort.data import timegrid
from fedcohort.data.binning import bin_edges, count_values
from fedcohort.data.classes import check_classes, check_each_class, check_kinds
from fedcohort.data.exact import check_covariates
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.nodes import Trees
from fedcohort.privacy.disclosure.models import fewest
from fedcohort.protocol import Federation, NothingToLearn, Task

#: Number of kinds of outcome by objective; of softmax, the number of classes.
KINDS = {"logistic": 2, "squared": 0, "poisson": 2, "cox": 2, "weibull": 2}


def fit(fed: Federation, config: BoostingSettings, task: Task) -> BoostedModel:
    """Grow the trees of all rounds.

    Raises
    ------
    DataError : there are no covariates.
    NothingToLearn : no records, no covariate with two bins, or few records of one kind.
    SiteUnavailable : a site left during the fit.
    SettingError : a setting names no column, or does not suit the outcome.
    """
    if task.dp is not None:
        return private.fit(fed, config, task, task.dp)
    check_covariates(task)
    objective = config.objective_of(task)
    first = fed.sum(count_values)
    fed = fed.only(fed.answered).awaiting()
    least = least_of(fed, config, task)
    if not first.rows:
        raise NothingToLearn("no site holds any record; check their selection.")
    edges = bin_edges(fed, first, config.max_bins, least)
    levels = task.levels if objective == "softmax" else ()
    begun = fed.sum(
        begin, edges=edges, objective=objective, classes=max(len(levels), 1),
        kinds=KINDS.get(objective, len(levels)), held_out=config.held_out,
    )  # fmt: skip
    _check(objective, begun, task, least, bool(np.isfinite(edges).any()))
    if config.patience and not begun.held_out:
        raise NothingToLearn(config.holds_none)
    known = math.inf
    if objective == "weibull":
        known = timegrid.intervals(fed, "protected", task.min_cell).known
    booster = Booster(fed, config, task, edges, begun, objective)
    grown: list[list[Tree]] = []
    root = booster.sums(more=True)
    held, best = float(begun.held_out), (math.inf, 0)
    for number in fed.rounds(config.rounds):
        if held and not number:
            best = float(root.held_out_loss) / held, 0
        grown.append(booster.add())
        root = booster.sums(more=number + 1 < config.rounds)
        report = {"loss": float(root.loss) / float(begun.training)}
        if held:
            report["held_out_loss"] = float(root.held_out_loss) / held
            best = min(best, (report["held_out_loss"], number + 1))
        fed.record(**report)
        if held and number + 1 - best[1] >= config.patience:
            break
    kept = grown[: max(best[1], 1)] if held else grown
    ensemble, told = _ensemble(booster, kept), None
    if task.explained:
        told = explained(
            fed, _ensemble(booster, grown), ensemble, edges, objective, rows=booster.rows,
            least=fewest(task.min_cell),
        )  # fmt: skip
    return BoostedModel(
        features=task.features,
        objective=Objective.of_loss(objective, config.sigma),
        ensemble=ensemble,
        explanation=None if told is None else told.rounded(),
        levels=task.levels if objective in ("logistic", "softmax") else (),
        baselines=tuple(booster.baselines[: len(kept) + 1]),
        known=known,
    )


def _ensemble(booster: Booster, grown: list[list[Tree]]) -> Ensemble:
    made = [tree.made() for trees in grown for tree in trees]
    parallel = len(grown[0]) // booster.classes
    return Ensemble(
        base=booster.base,
        trees=Trees.joined([tree for tree, _, _ in made]),
        gain=np.concatenate([gain for _, gain, _ in made]),
        cover=np.concatenate([cover for _, _, cover in made]),
        group=np.tile(np.arange(booster.classes, dtype=np.int32), parallel * len(grown)),
        parallel=parallel,
    )


def _check(objective: str, begun: Begun, task: Task, least: int, split: bool) -> None:
    """Refuse what trees cannot learn from, or could tell of few records.

    Raises
    ------
    NothingToLearn : few records in all, held out or of one kind; or no covariate has two bins.
    """
    rows, held = int(begun.training), int(begun.held_out)
    if rows < 2 * least or 0 < held < least:
        raise NothingToLearn(
            f"there are {rows} records to learn from and {held} held out at all sites together; "
            f"trees need {2 * least} and {least}. Add sites or records, or train "
            f"without a patience."
        )
    if not split:
        raise NothingToLearn(
            "no covariate has two values in enough records, so no tree has a split. "
            "Add covariates, sites or records."
        )
    kinds, cell = begun.kinds.tolist(), task.min_cell if least > 1 else 1
    if objective == "softmax":
        check_each_class(kinds, task.levels, cell)
    elif objective == "logistic":
        check_classes(sum(kinds), kinds[1], cell)
    elif kinds:
        check_kinds(sum(kinds), kinds[1], "count" if objective == "poisson" else "event", cell)
        if not kinds[1]:
            what = "count is above 0" if objective == "poisson" else "record has the event"
            raise NothingToLearn(f"no {what}; a fit needs some. Check how the outcome is coded.")
