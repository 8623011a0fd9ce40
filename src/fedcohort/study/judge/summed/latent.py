"""Metrics of latent variables on the blind rows of all sites, from sums over sites.

    exact       reconstruction_mae, imputation_mae, imputation_rmse, and if named
                reconstruction_accuracy, rounded_accuracy, g_ratio: as `pooled.latent` on the
                pooled blind rows, with their s_j
    omitted     latent_accuracy, latent_auc: a discriminant needs training rows by class

Columns with fewer than 2 m known blind entries are left out. Imputation also leaves out columns
with fewer than 2 m entries in rows with another view and, if a view's columns are imputed, up to m
− 1 rows that have the view alone (`sums.latent.Counted`).

Of the first repeat, errors by view and column are published if no few values dominate them, by
bounds from fourth powers (`metrics.sums.power_sums`), and if the column has at least 2 a m blind
entries, for the a-th arm. So there are fewer sums about a column than values, for any number of
arms (m ≥ 5).

G needs one sum over training rows, of their errors (`Coded`); in a private study there is none.

Every site also evaluates on its own blind rows (`latent_sites`); the mean over sites is reported.
The lower bound has only these.

Revealed: what `metrics.sums.latent` and `latent_sites` list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.calibration import varies
from fedcohort.metrics.sums import latent as sums_of
from fedcohort.metrics.sums.power_sums import Moments
from fedcohort.protocol import Method, Row
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.at_site.coding import Coded
from fedcohort.study.at_site.latent_sites import OWN, tell_own_errors
from fedcohort.study.at_site.own_judging import all_there, alone, judged_alone
from fedcohort.study.file.plan import Plan
from fedcohort.study.judge.pooled.latent import OF_PAIRS
from fedcohort.study.judge.shown.latent_rows import DECIMALS, of_model
from fedcohort.study.judge.summed.evaluation import Found, shown
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Run


@dataclass(frozen=True)
class Columns:
    """Columns (p,) of the blind rows of all sites.

    Attributes
    ----------
    names, views : of each.
    counted : columns that are summed, and their numbers of entries.
    centre, unit : mean and standard deviation; 0 and 1 for columns that are not summed.
    two : whether the model knows the column's two values.
    """

    names: tuple[str, ...]
    views: tuple[str, ...]
    counted: sums_of.Counted
    centre: Array
    unit: Array
    two: Array

    @property
    def asked(self) -> dict[str, Array]:
        """The arguments of a sum over these columns."""
        c = self.counted
        return {"centre": self.centre, "unit": self.unit, "asked": c.asked, "whole": c.whole}


@dataclass(frozen=True)
class Judge:
    """One model, and the sites that evaluate it.

    Attributes
    ----------
    fed : the sites that answered.
    model : in the form of `Coded`.
    columns : of their blind rows.
    min_cell : m.
    """

    fed: Coordinator
    model: str
    columns: Columns
    min_cell: int

    @classmethod
    def of(
        cls, fed: Coordinator, model: str, named: tuple[tuple[str, str], ...], least: int, *,
        fills: bool, pairs: Sequence[tuple[float, float]] = (),
    ) -> Judge:  # fmt: skip
        """Count known blind entries by column; sum mean and spread of columns with enough.

        Parameters
        ----------
        named : name and view of each column (p,).
        fills : whether the model imputes views.
        pairs : values of the first of them, the model's, that have two; NaN for others.
        """
        asked = fed.through(Coded(model))
        counts = asked.sum(sums_of.count_known_entries)
        fed = fed.only(fed.answered)
        asked = fed.through(Coded(model))
        counted = sums_of.Counted.of(counts, least, fills=fills)
        n = np.maximum(counted.entries, 1)
        centre = np.zeros(len(named))
        which = {"asked": counted.asked, "whole": counted.whole}
        if counted.asked.any():
            centre = asked.sum(sums_of.sum_entries, centre=centre, **which).total / n
            found = asked.sum(sums_of.sum_entries, centre=centre, **which)
            off = found.total / n
            centre, sd = centre + off, np.sqrt(np.maximum(found.squares / n - off**2, 0.0))
        else:
            sd = centre
        one = [not varies(float(s), abs(float(c))) for s, c in zip(sd, centre, strict=True)]
        counted = counted.without(np.array(one, bool))
        unit = np.where(counted.asked, sd, 1.0)
        names, views = zip(*named, strict=True) if named else ((), ())
        own = np.arange(len(named)) < len(pairs)
        two = own.copy()
        two[own] = np.isfinite(np.array(pairs).reshape(-1, 2)).all(axis=1)
        return cls(fed, model, Columns(names, views, counted, centre, unit, two), least)

    @property
    def asked(self) -> Coordinator:
        """The sites, with blind rows as the model sees them."""
        return self.fed.through(Coded(self.model))

    def metrics(self, plan: Plan) -> Found:
        """Return the metrics of all blind rows, and of each site's own.

        Raises
        ------
        SiteUnavailable : a site left between two calls; `ReplyRejected`, a site changed its reply's
            form.
        """
        counted = self.columns.counted
        found: dict[str, float] = {}
        if counted.asked.any():
            e = self.asked.sum(
                sums_of.sum_rebuild_errors, **self.columns.asked, filled=counted.filled
            )
            if not int(e.lost):
                found["reconstruction_mae"] = float(e.total) / int(counted.entries.sum())
            if (n := int(counted.filled_entries.sum())) and not int(e.filled_lost):
                found["imputation_mae"] = float(e.filled) / n
                found["imputation_rmse"] = math.sqrt(float(e.filled_squares) / n)
            found |= self._named(set(plan.metrics))
        own_rows = self.fed.through(Coded(self.model))
        within, own = alone(own_rows, tell_own_errors, OWN, plan)
        all_there(self.fed)
        values = {m: found.get(m, math.nan) for m in plan.metrics}
        return Found(shown(values), shown(within), own, [])

    def _named(self, wanted: set[str]) -> dict[str, float]:
        """Return the metrics of reconstructed rows that a study names."""
        found: dict[str, float] = {}
        c = self.columns
        two = c.counted.asked & c.two
        if wanted & {*OF_PAIRS} and two.any():
            a = self.asked.sum(sums_of.sum_entry_agreement, asked=two, whole=c.counted.whole)
            sums = zip(OF_PAIRS, (a.expected, a.rounded), strict=True)
            found |= {m: float(total) / int(a.entries) for m, total in sums}
        if "g_ratio" in wanted:
            views = (self.fed.through(Coded(self.model, half)) for half in ("train", "blind"))
            trained, blind = (v.sum(sums_of.sum_rebuild_squares, **c.asked) for v in views)
            known = min(int(trained.entries), int(blind.entries))
            if known >= max(2 * self.min_cell, 1) and not int(trained.lost) + int(blind.lost):
                trained, blind = (float(s.squares) / int(s.entries) for s in (trained, blind))
                found["g_ratio"] = trained / blind if blind else math.nan
        return found

    def shown(self, order: int) -> Array:
        """Return whether a column's error may be published: bool (p,).

        order : a ≥ 1, number of the arm.
        """
        c = self.columns
        entries = c.counted.entries
        asked = c.counted.asked & (entries >= 2 * order * max(self.min_cell, 1))
        if not asked.any():
            return asked
        arguments = c.asked | {"asked": asked}
        t = self.asked.sum(sums_of.sum_entry_tails, **arguments)
        powers = np.stack([np.zeros(len(asked)), entries.astype(float), t.cubes, t.fourths])
        moments = (Moments(n, p) for n, p in zip(entries, powers.T, strict=True))
        return asked & np.array([m.may_be_shown(self.min_cell) for m in moments], bool)

    def errors(self, order: int) -> list[Row]:
        """Return the publishable errors of columns and views, as in `latent_rows`.

        Raises
        ------
        SiteUnavailable : a site left meanwhile.
        """
        c, told = self.columns, self.shown(order)
        if not told.any():
            return []
        filled = (
            c.counted.filled
            & told
            & (c.counted.filled_entries >= 2 * order * max(self.min_cell, 1))
        )
        sums = self.asked.sum(
            sums_of.sum_column_errors, **(c.asked | {"asked": told}), filled=filled
        )
        all_there(self.fed)
        kinds = {
            "reconstruction": (sums.total, sums.squares, c.counted.entries, told),
            "imputation": (sums.filled, sums.filled_squares, c.counted.filled_entries, filled),
        }
        return [row for kind, of in kinds.items() for row in self._rows(kind, *of)]

    def _rows(
        self, kind: str, total: Array, squares: Array, entries: Array, told: Array
    ) -> Iterator[Row]:
        views = np.array(self.columns.views, object)

        def row(view: str, feature: str | None, at: Array) -> Row:
            n = int(entries[at].sum())
            mae, rmse = float(total[at].sum()) / n, math.sqrt(float(squares[at].sum()) / n)
            head: Row = {"kind": kind, "view": view, "feature": feature}
            return plain({**head, "mae": round(mae, DECIMALS), "rmse": round(rmse, DECIMALS)})

        for view in dict.fromkeys(self.columns.views):
            if len(columns := np.flatnonzero(told & (views == view))):
                yield row(view, None, columns)
        for j in np.flatnonzero(told):
            yield row(self.columns.views[j], self.columns.names[j], np.array([j]))


def judge_alone(fed: Coordinator, plan: Plan) -> Found:
    """Evaluate each site's own latent variables there; the metrics are means over sites."""
    return judged_alone(fed.through(Coded("")), tell_own_errors, OWN, plan)


def shown_rows(judge: Judge, method: Method, run: Run, order: int) -> dict[str, list[Row]]:
    """Return lists of rows by key of results.json, without arm, scenario and repeat.

    Parameters
    ----------
    order : number of the arm, from 1.

    Raises
    ------
    SiteUnavailable : a site left meanwhile.
    """
    return of_model(method, run) | {"latent_errors": judge.errors(order)}
