"""One model of a deployed study without some hospitals, over the sites that stay.

    a new fit    session "fit" or "final", if it is asked for as a comparison
    the model    session "forget" or "forget-all": the preprocessing anew, then `Method.forget`;
                 where a method, its settings or a hospital does not allow that, the new fit, and
                 the reason is told

The new fit comes first, so that what hospitals keep at the end is of the model that is written.

Revealed: what the sessions' steps declare (`study.at_site.forgetting`), and the ledger of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from fedcohort.protocol import Fitted, Method, NotSupported, Refused, registry
from fedcohort.study.at_site.forgetting import FORGETS, UNABLE
from fedcohort.study.at_site.sessions import Session
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.forget import keeps
from fedcohort.study.file.plan import Plan
from fedcohort.study.run.engine import Before, Run, fit_over
from fedcohort.study.run.network_fits import NetworkFits
from fedcohort.study.run.pieces import FINAL
from fedcohort.study.sites.layout import seed_of

#: Rounds of the refinement, as a share of the fit's, if none are asked for.
SHARE = 0.2
#: Kind of the fit of a model → kind of the session that forgets in it.
_KINDS = {fit: kind for kind, fit in FORGETS.items()}


class Timed(NamedTuple):
    """A fit and its seconds."""

    run: Run
    seconds: float


class Forgot(NamedTuple):
    """A model without some hospitals.

    Attributes
    ----------
    made : its fit.
    fresh : the new fit, if one was made; `made` itself where `why` says so.
    why : it was fitted anew; "" if it was not.
    """

    made: Timed
    fresh: Timed | None
    why: str


def forget(
    fits: NetworkFits, arm: Arm, old: Fitted, settings: Mapping[str, Any], *, final: bool
) -> Forgot:
    """Return one model of an arm without the hospitals that the study of `fits` forgets.

    Parameters
    ----------
    old : the model with them. settings : of its fit.
    final : whether it is of all rows, not of the first repeat's.

    Raises
    ------
    SiteUnavailable : a site is away.
    FedcohortError : no model can be fitted.
    """
    plan, method = fits.plan, registry.find(arm.method)
    asked, kind = plan.forget, "final" if final else "fit"
    assert asked is not None
    fresh = _fitted(fits, arm, kind, settings, None) if asked.compare else None
    why = _unable(plan, arm)
    if not why:
        try:
            more = refined(method, settings, asked.rounds or None)
            given = {**settings, **more}
            return Forgot(_fitted(fits, arm, _KINDS[kind], given, Before(old, {})), fresh, "")
        except NotSupported as error:
            why = str(error)
        except Refused as error:
            if error.code not in UNABLE:
                raise
            why = str(error).rstrip(".")
    fresh = fresh or _fitted(fits, arm, kind, settings, None)
    return Forgot(fresh, fresh, why)


def refined(method: Method, settings: Mapping[str, Any], rounds: int | None) -> dict[str, Any]:
    """Return the settings of the refinement."""
    if "rounds" not in {f.name for f in method.fields}:
        return {}
    of = int(method.configure(settings).rounds)
    return {"rounds": rounds or max(1, math.ceil(SHARE * of))}


def _unable(plan: Plan, arm: Arm) -> str:
    """Return why a model cannot be made from what hospitals kept, or ""."""
    if registry.find(arm.method).forget is None:
        return f"method {arm.method!r} keeps nothing of single sites"
    if plan.privacy.dp is not None:
        return "a private fit spends its ε again in any further round"
    if keeps(arm) and not plan.keep:
        return "the study did not ask hospitals to keep their parts (keep: true)"
    return ""


def _fitted(
    fits: NetworkFits, arm: Arm, kind: str, given: Mapping[str, Any], before: Before | None
) -> Timed:
    """Return one fit over the sites that stay; its session is forgotten unless it can go on."""
    session = Session(kind, 0, fits.plan.arms.index(arm))
    seed = seed_of(fits.plan, FINAL if kind in ("final", _KINDS["final"]) else 0)
    problem = replace(fits.terms.problem, own=fits.own)
    began = time.perf_counter()
    try:
        with fits.session(session) as open_:
            run = fit_over(
                open_.fed, problem, registry.find(arm.method), given, arm.preprocess, seed,
                open_.trail, every=True, before=before and before.model,
            )  # fmt: skip
    except (NotSupported, Refused) as error:
        if not isinstance(error, Refused) or error.code in UNABLE:
            fits.forget(session)
        raise
    fits.forget(session)
    return Timed(run, time.perf_counter() - began)
