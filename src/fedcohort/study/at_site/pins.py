"""Limits on arrays and real numbers in a session's questions.

`bounds` checks a step's whole numbers and texts against the study. Real numbers and arrays follow
from earlier sums, which a site does not see. But in an honest fit most keep their first value, and
settings limit their number:

    grids of time, edges, centres, scales, origins, frames    the same in each call of a step; times
        of risk sets in each step of a session. `MORE` has the steps that ask twice, and why
    a preprocessing, an evaluated model                       one a session
    times in a plan's loss (`models.losses.times_in`)     one list a session
    all other arguments at one model, where sums under        the same in all attempts
        other weights would separate sites (`AT_ONE`)
    rounds     whose models one site tells (``keep``): those of the settings
    lengths    intervals of time, clusters, centroids, bins    at most those that the settings give;
        under masks, intervals also need `min_cell` records each, by the numbers of records that
        all sites of the sum signed (`Call.company`)

First values are remembered beyond attempts and restarts (`Once`). A fit may begin anew, for
example over other sites, with other values: `ATTEMPTS` attempts in all. An evaluation may not
change its model, since the fit's journal gives the same again. Coefficients, trained models and
steps along a path are free: a fit consists of them.

Revealed: by a refusal, the rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.data.prepare import Design
from fedcohort.metrics.decision import survival_edges
from fedcohort.models.losses import times_in
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.federation import View
from fedcohort.protocol.host import Call
from fedcohort.protocol.once import InMemory, Once, digest_of
from fedcohort.study.at_site.bounds import Bounds, beyond
from fedcohort.study.at_site.coding import Coded
from fedcohort.study.at_site.judging import EVERY, Own, Said
from fedcohort.study.at_site.placing import Clustered
from fedcohort.study.at_site.virtual_sites import Drawn
from fedcohort.study.judge.summed.evaluation import BINS
from fedcohort.study.judge.summed.time_scale import CELLS, TIMES
from fedcohort.training.clusters.candidates import CANDIDATES, DRAWS, FEWEST, TRIES
from fedcohort.training.networks.plan import Plan

#: Largest number of attempts with different values, as a session may begin anew over other sites.
ATTEMPTS = 3
#: Name of what a session evaluates, of which there is one.
JUDGED_MODEL = "the model that is judged"
#: Rounds of clustering, unless the settings give more.
ROUNDS = 300
#: Largest number of refinements of a histogram for quantiles.
REFINED = 8
#: Cells per bin in the finest histogram of predictions, which defines the bins.
FINE = 16

#: Arguments with one value in each step of a session.
FIXED = frozenset(
    "times sizes tied grid centre scale origin spread unit middle frame groups marks of "
    "shared cut within n_levels axes used centroids codes numbers targets g risk_edges edges "
    "known followed weight y_mean f_mean last moving regressed".split()
)
#: Of these, those with one value in all steps of a session together.
TOGETHER = frozenset({"times"})
#: (step, argument) → number of values in an honest session, if not one.
MORE: Mapping[tuple[str, str], int] = {
    ("disorder", "mean"): 1,
    ("disorder", "covariance"): 1,
    ("disorder", "dead"): 1,
    ("disorder", "censored"): 1,
    ("project", "share"): 1,
    ("project_sites", "share"): 1,
    **{("replicate", name): 1 for name in ("draws", "residual", "tau")},
    **{("replicate_survival", name): 1 for name in ("cuts", "draws", "tau", "hazards")},
    ("cubes", "mean"): 1,
    ("cubes", "covariance"): 1,
    ("skew_sites", "points"): 1,
    ("skew_sites", "covariance"): 1,
    # a site's own effects are asked once, at the posterior at the end
    **{("own_effects", name): 1 for name in ("shares", "mean", "covariance", "residual")},
    **{("own_ratios", name): 1 for name in ("shares", "points", "mean", "covariance")},
    **{("keep_own", name): 1 for name in ("precision", "shift", "ends")},
    ("take_part", "centre"): 2,  # again about the means, to keep digits
    ("curvature", "scale"): 2,  # first about the origin only
    ("slopes", "scale"): 2,
    ("compare_sets", "groups"): 30,  # sets of records are joined until they differ by enough
    ("sum_risks", "last"): 2,  # each time, and those joined without the rows held out
    ("sum_points", "origin"): 2,  # again about the mean, to keep precision
    ("sum_points", "groups"): 2,  # of levels, and of the columns
    ("sum_points", "frame"): 2,  # without a scale, and with it
    ("sum_spread", "origin"): 2,
    ("sum_powers", "centre"): 2,
    ("sum_entries", "centre"): 3,  # 0, and about the means
    ("sum_outcome", "centre"): 2,  # 0, and about the mean
    ("score_moments", "centre"): 2,  # 0, and the mean of risks
    ("sum_curve_moments", "centre"): 2,
    ("logit_moments", "centre"): 2,
    ("vote_place", "centre"): 4,  # rounds of voting on a column's centre
    ("count_labels", "edges"): 2,  # bins for pairs, and the thresholds of decision curves
    ("sum_own_pairs", "tau"): 1,  # elsewhere τ is a smoothing, and falls
    ("count_spreads", "thetas"): 1,  # the posterior at the end, not others
    ("count_spreads", "weights"): 1,
    ("count_spreads", "centres"): 1,
    # a fit's trees are explained once, by one choice of columns, groups and values
    **{("count_explained", name): 1 for name in ("columns", "share")},
    **{
        ("explain_trees", name): 1
        for name in "columns ends points base kept roots feature threshold left right goes_left "
        "value cover group".split()
    },
}
#: Arguments of `FIXED` with another meaning in a step, where they differ from call to call.
FREE = frozenset(
    {
        ("weigh_candidates", "sizes"),
        ("criterion", "shared"),
        ("count_sides", "cut"),  # of the splits that a level of trees tries
        ("sum_sides", "cut"),
    }
)
#: Steps that are asked once a round, ``draw``, for one model and one set of weights.
DRAWN = frozenset({"tell_slope", "tell_distance", "weigh_slope"})
#: Step → argument at which it is asked once: two sums there give two equations of two sites.
AT_ONE: Mapping[str, str] = {"weigh_slope": "theta"}
#: Steps in which sites choose among models.
SIDES = frozenset({"tell_takes", "train_taken", "tell_side"})
#: Steps that count predictions in the finest cells.
FINEST = frozenset({"count_risks", "count_curves"})
#: Steps whose edges are refined in the search for quantiles.
SKETCHES = frozenset(
    "death_cells column_cells cell_counts cell_times count_bins count_value_cells".split()
)
#: Steps whose edges are those of covariates or of Table 1, and of no predictions.
COVARIATES = SKETCHES | {"count_cells", "begin"}


@dataclass
class Pins:
    """Checks one session's questions against its first ones.

    Attributes
    ----------
    bounds : of the session, with its study, kind and arm.
    once : remembers beyond this session.
    """

    bounds: Bounds
    once: Once = field(repr=False)
    _held: dict[str, InMemory] = field(default_factory=dict[str, InMemory], repr=False)

    def check(self, call: Call, arguments: Mapping[str, Any]) -> None:
        """Check one call's arrays and real numbers, and its view.

        Raises
        ------
        Refused : "beyond", and which argument changed or is too long.
        """
        if call.step.private or self.bounds.kind == "shift":
            return  # checked by the guard of a private fit; by `Consent` in a comparison
        if call.view is not None and (said := _model_of(call.view)) and self.bounds.kind == "judge":
            self._one(call, JUDGED_MODEL, said.encode(), 1, attempts=1)
        if isinstance(call.view, Design) and self.bounds.kind in ("fit", "tune"):
            self._one(call, "the preprocessing", call.view.spec.encode(), 1)
        if isinstance(call.view, Said):
            most = 1 if call.view.times else 0
            self._size("times of predicted survival", len(call.view.times), most * TIMES)
        step = call.step.name
        if (at := AT_ONE.get(step)) is not None:
            rest = {k: digest_of(v) for k, v in sorted(arguments.items()) if k != at}
            mark = f"what is summed at one model ({digest_of(arguments[at])[:16]})"
            self._one(call, mark, repr(rest).encode(), 1, attempts=1)
        if "plan" in arguments and (times := times_in(Plan.of(arguments["plan"]).loss)):
            self._one(call, "the times in a plan", times.encode(), 1)
        for name, value in arguments.items():
            if isinstance(value, np.ndarray):
                self._check_size(step, name, cast(Array, value), call.company)
            most = self._most(step, name) or self._rounds(call, name)
            if isinstance(value, (np.ndarray, float)) and most:
                most *= 1 + max(self.bounds.strata, default=0) if "stratum" in arguments else 1
                mark = name if name in TOGETHER else f"{name} of {step}"
                mark += f" in round {arguments['draw'] + 1}" if step in DRAWN else ""
                mark += f" of {arguments['q']} dimensions" if "q" in arguments else ""
                mark += f" of class {one}" if (one := _class_of(call.view)) != EVERY else ""
                a = np.asarray(value)
                self._one(call, mark, repr((a.dtype.str, a.shape)).encode() + a.tobytes(), most)

    def _most(self, step: str, name: str) -> int:
        """Return the number of values of an argument in an honest session; 0 if it is free."""
        if step in DRAWN:
            return 1
        if step in SKETCHES and name in FIXED:
            return REFINED
        return MORE.get((step, name), int(name in FIXED and (step, name) not in FREE))

    def _rounds(self, call: Call, name: str) -> int:
        """Return the number of paths of centroids for sums along them; 0 for other arguments.

        One per round, for each tried number of clusters; if agreement between sites chooses the
        number, also without each site.
        """
        if (call.step.name, name) != ("sum_near", "path") or self.most_clusters is None:
            return 0
        tried = self.most_clusters * (2 + len(call.among)) if self._auto else 1
        rounds = [n for n in self.bounds.chosen("rounds") if type(n) is int]
        return max([ROUNDS, *rounds]) * tried

    def _one(
        self, call: Call, name: str, value: bytes, most: int, attempts: int = ATTEMPTS
    ) -> None:
        digest = hashlib.sha256(value).hexdigest()
        held = self._held.setdefault(call.history, InMemory())
        if held(name, digest, most) and self.once(name, digest, most * attempts):
            return
        raise differs(name)

    def _size(self, name: str, n: int, most: int) -> None:
        if n > most:
            raise beyond(f"{n} {name}; its settings give at most {most}")

    def _check_size(self, step: str, name: str, value: Array, company: int) -> None:
        n = len(value) if value.ndim else 1
        if name == "times" and (most := self.most_times) is not None:
            self._size("times in a grid", n, most)
            if company and self.bounds.kind in ("fit", "tune"):
                cell = max(self.bounds.terms.plan.min_cell, 1)
                most = company // cell + max(1, *self.bounds.strata)
                if n > most:
                    raise beyond(
                        f"{n} times in a grid; the sites of the sum have rows for {most} "
                        f"intervals of {cell}"
                    )
        elif name == "keep" and not self._kept_rounds >= {*value.ravel().tolist()}:
            raise beyond("models after other rounds than those of its settings")
        elif name == "grid":
            self._size("times in a grid", n, CELLS + timegrid.MOST)
        elif name == "risk_edges" and step in FINEST:
            self._size("edges of predictions", n, FINE * BINS + 1)
        elif name == "risk_edges" or (name == "edges" and step not in COVARIATES):
            self._size("edges of predictions", n, BINS)
            if step == "sum_groups" and not np.array_equal(value, survival_edges()):
                raise beyond("other edges of predicted survival than those of decision curves")
        if (k := self.most_clusters) is None:
            return
        if name in ("path", "before") and value.ndim >= 3:
            self._size("centroids", value.shape[-2], k)
        elif name in ("about", "centroids") and value.ndim == 2:
            self._size("centroids", n, k)
        elif name == "candidates":
            most = max(CANDIDATES * k, FEWEST)
            self._size("candidates for centroids", n, TRIES * most * (DRAWS + 1))
        elif name == "thetas" and step in SIDES:
            self._size("models among which sites choose", n, k)

    @cached_property
    def most_times(self) -> int | None:
        """Largest number of times in a grid; None if exact times were approved."""
        if self.bounds.kind not in ("fit", "tune"):
            return TIMES
        found = 0
        for rule in self.bounds.chosen("time_grid"):
            if rule == "exact":
                return None
            found = max(found, timegrid.intervals_of(rule or timegrid.MOST) or timegrid.MOST)
        found += 1  # and one after the last time with known survival
        return found * max(1, *self.bounds.strata)

    @cached_property
    def _kept_rounds(self) -> set[int]:
        """Rounds after which a site may tell a model of its own, besides the last one.

        In tuning these are the tried numbers of rounds.
        """
        named = [rounds for found in self.bounds.chosen("keep_rounds") for rounds in found or ()]
        return {*named, *self.bounds.grid.get("rounds", ())}

    @property
    def _auto(self) -> bool:
        return "auto" in self.bounds.chosen("n_clusters")

    @cached_property
    def most_clusters(self) -> int | None:
        """Largest number of clusters of the arm; None if unknown."""
        if self.bounds.arm is None:
            return None
        found = [n for n in self.bounds.chosen("n_clusters") if type(n) is int]
        if self._auto:
            found += [max(span) for span in self.bounds.chosen("k_range") if span]
        return max(found, default=None)


def differs(name: str) -> Refused:
    """Return the refusal of a second value of what has one in a session."""
    return Refused(
        "beyond",
        f"the coordinator asks for more than the approved study: {name} differs from its first "
        f"value in this session. An honest run does not change it. If sites left and the run "
        f"begins anew, submit the study under another name.",
    )


def _class_of(view: View | None) -> int:
    """Return the class that a view has against the rest, or `EVERY`."""
    return view.one if isinstance(view, (Said, Own)) else EVERY


def _model_of(view: View) -> str:
    """Return the text of a view's evaluated model; "" without one."""
    if isinstance(view, Said):
        return view.model
    said = view.said if isinstance(view, (Clustered, Coded, Drawn)) else None
    return "" if said is None else said.model
