"""`fedcohort forget`: a finished run's models without one hospital, which withdraws.

For each arm over sites, with the sites' training rows made again (`rebuilt`):

    preprocessing    made anew over the other sites
    the model        by `Method.forget`, from what the others kept of the fit (`kept/`); where a
                     method, its settings or the run does not allow that, by a new fit without the
                     site, which forgets exactly, and the reason is told
    a new fit        without the site, to compare with, if asked

With q the forgotten model, r the new fit and o the old model of all sites, on blind rows of the
other hospitals (the site's own blind rows left out where rows have sites; of a final model, on
training rows, because it has no blind ones):

    difference   largest and mean |q(x) − r(x)|: of probabilities, also of survival at three times;
                 of values and counts in standard deviations of the outcome; else in those of r(x)
    divergence   E_q[ln q − ln r], in nats, where both are posteriors
    membership   AUC of the attack by likelihood (`scores`) that tells the site's training rows from
                 blind rows, on o, q and r: that of r is what an attacker finds without any memory

each also for o in the place of q. The first repeat's model is measured and, if the study has one,
the final model forgotten, too.

Revealed: the ledger of the refinement. **Who has o and q can subtract**: of `bayes_linear` the
site's sums follow, of `bayes_net` its factor. The site's own numbers alone are never asked for, and
it need not answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.audit.rebuilt import Finished, Rebuilt
from fedcohort.audit.scores import scores
from fedcohort.data.outcome import Survival
from fedcohort.data.prepare import Design
from fedcohort.metrics.membership import delong
from fedcohort.protocol import DataError, FedcohortError, Fitted, Method, NotSupported
from fedcohort.study.file.arms import Arm
from fedcohort.study.results import forgetting, saved
from fedcohort.study.run.engine import Before, Problem, Run, fit_once
from fedcohort.study.run.network_forget import refined
from fedcohort.study.run.pieces import FINAL, JUDGED
from fedcohort.study.sites.layout import Laid, lay_out, seed_of

#: Smallest number of rows on either side of an attack.
LEAST = 20
#: Shares of blind rows' times at which survival is compared.
AT = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Made:
    """One model without the site.

    Attributes
    ----------
    name : of the model below `models/`.
    run : its fit. old : the model of all sites.
    why : why it was fitted anew; "" if it was not.
    row : what forget.json says.
    """

    name: str
    arm: Arm
    run: Run
    old: saved.Saved
    why: str
    row: dict[str, Any]


@dataclass(frozen=True)
class Origin:
    """A finished run, or a folder from which sites were forgotten before.

    Attributes
    ----------
    folder : of the models.
    run : the run that they come from.
    gone : sites forgotten before.
    """

    folder: Path
    run: Finished
    gone: tuple[str, ...] = ()

    def common(self, arm: str | None, site: str) -> list[Arm]:
        """Return the arms with one model for all sites, or the one of that name.

        Raises
        ------
        DataError : no such arm, or only arms whose models belong to single sites.
        """
        arms = self.run.arms() if arm is None else [self.run.arm(arm)]
        found = [one for one in arms if not one.every]
        if not found:
            raise DataError(
                f"{self.folder}: the models of arm {arms[0].name!r} belong to single sites, and "
                f"none to all. Run the study without {site!r}."
            )
        return found

    def models(self, arm: Arm) -> list[tuple[str, int]]:
        """Return an arm's models: names below `models/`, and repeats."""
        final = (self.run.folder / "models" / arm.name / JUDGED).is_dir()
        return [(f"{arm.name}/{JUDGED}", 0), (arm.name, FINAL)] if final else [(arm.name, 0)]


@dataclass(frozen=True)
class Source(Origin):
    """An origin in one process; its folder also has what sites keep."""

    run: Rebuilt

    def check(self, site: str) -> None:
        """Check that a site can be forgotten; see `check_site`."""
        check_site(f"{self.folder}", self.run.laid.problem.frames, self.gone, site)


def check_site(where: str, names: Iterable[str], gone: Collection[str], site: str) -> None:
    """Check that a site can be forgotten.

    Parameters
    ----------
    where : folder or name of the run.
    names : its sites. gone : those that were forgotten before.

    Raises
    ------
    DataError : the site took no part, was forgotten before, or is the last one.
    """
    left = [name for name in sorted(names) if name not in gone]
    if site in gone:
        raise DataError(f"{where}: site {site!r} was forgotten before.")
    if site not in left:
        raise DataError(
            f"{where}: site {site!r} took no part in this run; its sites are: {', '.join(left)}."
        )
    if left == [site]:
        raise DataError(
            f"{where}: site {site!r} is the last one, and without it there is no model. Delete the "
            f"models."
        )


def forget(
    source: Source,
    site: str,
    *,
    arm: str | None = None,
    rounds: int | None = None,
    compare: bool = True,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Made]:
    """Return the models of a run without a site.

    Parameters
    ----------
    arm : its name; None: all arms over sites with a common model.
    rounds : of the refinement; None: `network_forget.SHARE` of the fit's.
    compare : also make a new fit without the site.
    tell : called with what is done now.

    Raises
    ------
    DataError : the site took no part or is the last one; no such arm, or only arms whose models
        belong to single sites.
    FedcohortError : no model can be fitted without the site.
    """
    source.check(site)
    found: list[Made] = []
    for one in source.common(arm, site):
        for name, repeat in source.models(one):
            tell(name)
            found.append(_made(source, site, one, name, repeat, rounds, compare))
    return found


def _made(
    source: Source, site: str, arm: Arm, name: str, repeat: int, rounds: int | None, compare: bool
) -> Made:
    run, method = source.run, source.run.method(arm)
    old, settings = saved.read(source.folder / "models" / name), run.settings(arm)
    laid = _laid(source, repeat)
    rest = {k: f for k, f in laid.problem.frames.items() if k not in (*source.gone, site)}
    problem, seed = laid.problem.on(rest), seed_of(run.plan, repeat)

    def fitted(given: Mapping[str, Any], before: Before | None) -> tuple[Run, float]:
        began = time.perf_counter()
        made = fit_once(problem, method, given, arm.preprocess, seed, before=before)
        return made, time.perf_counter() - began

    kept = forgetting.kept_of(source.folder, name, rest)
    why = _unable(method, settings, problem, rest, kept)
    made, seconds = None, 0.0
    if not why:
        try:
            more = refined(method, settings, rounds)
            made, seconds = fitted({**settings, **more}, Before(old.model, kept))
        except NotSupported as error:
            why = str(error)
    fresh, spent = (None, 0.0) if made and not compare else fitted(settings, None)
    if made is None:
        assert fresh is not None
        made, seconds = fresh, spent
    row = row_of(arm, name, sorted(rest), why, (made, seconds), fresh and (fresh, spent))
    models = {"before": old.model, "after": made.model, "new": fresh and fresh.model}
    designs = {"before": old.design, "after": made.design, "new": fresh and fresh.design}
    seen = {k: (m, d) for k, m in models.items() if m is not None and (d := designs[k]) is not None}
    row |= measured(seen, laid, site, source.gone)
    return Made(name, arm, made, old, why, row)


def row_of(
    arm: Arm, name: str, sites: Sequence[str], why: str, made: tuple[Run, float],
    fresh: tuple[Run, float] | None,
) -> dict[str, Any]:  # fmt: skip
    """Return what forget.json says of a model before it is measured.

    Parameters
    ----------
    sites : those that stay.
    why : it was fitted anew; "" if it was not.
    made, fresh : the model's fit and the new fit, each with its seconds.
    """
    return {
        "arm": arm.name, "method": arm.method, "model": name, "sites": [*sites],
        "how": "fitted anew" if why else "forgotten", "why": why,
        "rounds": made[0].rounds, "seconds": round(made[1], 3),
        "rounds_of_new_fit": fresh and fresh[0].rounds,
        "seconds_of_new_fit": fresh and round(fresh[1], 3),
    }  # fmt: skip


def _laid(source: Source, repeat: int) -> Laid:
    """Return the sites' rows of a model."""
    run = source.run
    if not repeat:
        return run.laid
    return lay_out(run.plan, run.table, run.plan.scenarios[0], repeat)


def _unable(
    method: Method,
    settings: Mapping[str, Any],
    problem: Problem,
    sites: Sequence[str] | Mapping[str, Any],
    kept: Mapping[str, Any],
) -> str:
    """Return why a model cannot be made from what the sites kept, or ""."""
    if method.forget is None:
        return f"method {method.name!r} keeps nothing of single sites"
    if problem.dp is not None:
        return "a private fit spends its ε again in any further round"
    keeps = any(step.keeps for step in method.asked(method.configure(settings)))
    lacking = [site for site in sites if site not in kept]
    if keeps and lacking:
        return (
            f"nothing is kept of {', '.join(lacking)}, as of a run by an earlier version or on "
            f"another runtime"
        )
    return ""


# measures -----------------------------------------------------------------------------


def measured(
    models: Mapping[str, tuple[Fitted, Design]], laid: Laid, site: str, gone: Sequence[str] = ()
) -> dict[str, Any]:
    """Return difference, divergence and membership, as in forget.json; None where unknown.

    Parameters
    ----------
    models : "before", "after" and, of a new fit, "new".
    gone : sites that were forgotten before.
    """
    found: dict[str, Any] = {"difference": None, "divergence": None}
    if "new" in models and models["after"][0] is not models["new"][0]:
        found["difference"] = differences(models, *_others(laid, site, gone))
        found["divergence"] = divergences({k: m for k, (m, _) in models.items()})
    return found | {"membership": _membership(models, laid, site)}


def _others(laid: Laid, site: str, gone: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Return rows of other hospitals, blind ones if there are any, and what they are."""
    out = (site, *gone)
    if not len(laid.test):
        frames = [f for name, f in sorted(laid.problem.frames.items()) if name not in out]
        return pd.concat(frames, ignore_index=True), "training rows"
    if laid.own_site is None:
        return laid.test, "blind rows"
    mask = ~np.isin(np.asarray(laid.own_site).astype(str), out)
    return laid.test[mask].reset_index(drop=True), "blind rows"


def differences(
    models: Mapping[str, tuple[Fitted, Design]], rows: pd.DataFrame, kind: str
) -> dict[str, Any] | None:
    """Return the differences of predictions for `rows` from those of the new fit."""
    if not len(rows):
        return None
    said = {}
    unit = ""
    for key, (model, design) in models.items():
        try:
            said[key], unit = _predicted(model, design, rows)
        except NotSupported:
            return None
    scale = 1.0
    if unit == "standard deviations of predictions":
        scale = max(float(said["new"].std()), np.finfo(float).tiny)
    found: dict[str, Any] = {"rows": len(rows), "of": kind, "unit": unit}
    for key in ("before", "after"):
        off = np.abs(said[key] - said["new"]) / scale
        found[key] = {"largest": float(off.max()), "mean": float(off.mean())}
    return found


def _predicted(model: Fitted, design: Design, rows: pd.DataFrame) -> tuple[Array, str]:
    """Return predictions (n,) or (n, m) for rows, and their unit."""
    x, outcome = design.matrix(rows), design.outcome
    if isinstance(outcome, Survival):
        times = np.quantile(np.asarray(rows[outcome.time], float), AT)
        try:
            return model.predict_survival(x, times), "probability"
        except NotSupported:
            return model.predict(x), "standard deviations of predictions"
    found = np.asarray(model.predict(x), float)
    if design.classes:
        return found, "probability"
    if outcome is not None and outcome.is_number:
        spread = float(np.std(np.asarray(rows[outcome.label], float)))
        return found / (spread or 1.0), "standard deviations of the outcome"
    raise NotSupported("predict")


def divergences(models: Mapping[str, Fitted]) -> dict[str, float] | None:
    """Return the divergence of the old and the forgotten posterior from the new fit's."""
    try:
        return {k: models[k].divergence(models["new"]) for k in ("before", "after")}
    except NotSupported:
        return None


def _membership(
    models: Mapping[str, tuple[Fitted, Design]], laid: Laid, site: str
) -> dict[str, Any] | None:
    """Return the AUC of membership of a site's training rows, by model.

    The others are the site's blind rows where rows have sites, as its patients may differ.
    """
    inside, others = laid.problem.frames[site], laid.test
    if laid.own_site is not None:
        own = np.asarray(laid.own_site).astype(str) == site
        if own.sum() >= LEAST:
            others = others[own]
    if min(len(inside), len(others)) < LEAST:
        return None
    rows = pd.concat([inside, others], ignore_index=True)
    found: dict[str, Any] = {"rows": len(inside), "others": len(others)}
    for key, (model, design) in models.items():
        try:
            said = scores(model, design, rows)
        except FedcohortError:
            return None
        auc = delong(said[: len(inside)], said[len(inside) :])
        found[key] = {k: round(getattr(auc, k), 4) for k in ("value", "low", "high")}
    return found
