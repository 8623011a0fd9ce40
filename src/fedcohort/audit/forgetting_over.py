"""A deployed study's models without some hospitals, over the network of the others.

The coordinator has the old models; what hospitals kept of their fits is at their nodes (`keep:`).
For each model, as in `forgetting`:

    a new fit    session "fit" or "final", if it is asked for as a comparison
    the model    session "forget" or "forget-all": the preprocessing anew, then `Method.forget`;
                 where a method, its settings or a hospital does not allow that, the new fit, and
                 the reason is told

The new fit comes first, so that what hospitals keep at the end is of the model that is written.
Differences of predictions and membership are not measured: rows are at the hospitals.

Revealed: what the sessions' steps declare (`study.at_site.forgetting`), and the ledger of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from fedcohort.audit import forgotten
from fedcohort.audit.forgetting import Made, Origin, divergences, refined, row_of
from fedcohort.audit.rebuilt import Finished
from fedcohort.protocol import FedcohortError, NotSupported, Refused, registry
from fedcohort.runtime.coordinator import Progress
from fedcohort.study.at_site.forgetting import FORGETS, UNABLE
from fedcohort.study.at_site.sessions import Session
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.forget import Forget, keeps
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.terms import Terms
from fedcohort.study.results import saved
from fedcohort.study.run import arithmetic, folder
from fedcohort.study.run.engine import Before, Run, fit_over
from fedcohort.study.run.network_fits import NetworkFits
from fedcohort.study.run.pieces import FINAL, write_text
from fedcohort.study.run.runner import Event, own_of
from fedcohort.study.sites.layout import seed_of
from fedcohort.study.sites.sites import Sites

#: Kind of the fit of a model → kind of the session that forgets in it.
_KINDS = {fit: kind for kind, fit in FORGETS.items()}


def run_over(
    terms: Terms,
    sites: Sites,
    first: Path,
    old: Path,
    gone: tuple[str, ...],
    out: Path,
    *,
    resume: bool = False,
    tell: Callable[[Event], None] = lambda event: None,
    data: Path | None = None,
    debug: bool = False,
) -> dict[str, Any]:
    """Write the folder of the models without the hospitals of `terms`; return forget.json.

    Parameters
    ----------
    sites : those that stay.
    first : folder of the run whose models these are.
    old : the same, or the folder of the last forgetting.
    gone : sites that `old` lacks already.
    data : folder of the coordinator's own rows; None without.

    Raises
    ------
    SiteUnavailable : a site is away; bring it back and resume.
    FedcohortError : no model can be made, or the disk is full.
    """
    asked = terms.plan.forget
    assert asked is not None
    new = [site for site in asked.sites if site not in gone]
    results = json.loads((first / "results.json").read_text(encoding="utf-8"))
    origin = Origin(old, Finished(first, terms.plan, terms.seen, results), gone)
    todo = [
        (arm, name, bool(repeat))
        for arm in origin.common(asked.arm or None, ", ".join(new))
        for name, repeat in origin.models(arm)
    ]
    now = ["", 0]

    def on_call(session: str, progress: Progress) -> None:
        rounds = (progress.round + 1, progress.rounds) if progress.rounds else None
        tell(Event(int(now[1]), len(todo), str(now[0]), rounds, session, progress))

    def work(began: float) -> dict[str, Any]:
        own = own_of(terms, data)
        fits = NetworkFits(terms, sites, out / folder.WORK, out / "models", on_call, debug, own)
        made: list[Made] = []
        for done, (arm, name, final) in enumerate(todo):
            now[:] = [name, done]
            made.append(_made(fits, origin, asked, arm, name, sites.names, final=final))
            tell(Event(done + 1, len(todo), name, None))
        content = forgotten.write(origin, ", ".join(new), made, out, _network(terms, sites))
        _write_study(terms, out)
        return content

    facts = {"study": terms.hash, "sites": list(sites.names)}
    return folder.in_folder(
        out, resume, facts, "the study, its sites or the version", arithmetic.go_on, work
    )


def _made(
    fits: NetworkFits, origin: Origin, asked: Forget, arm: Arm, name: str, names: tuple[str, ...],
    *, final: bool,
) -> Made:  # fmt: skip
    plan, method = fits.plan, registry.find(arm.method)
    old, settings = saved.read(origin.folder / "models" / name), origin.run.settings(arm)
    index, kind = plan.arms.index(arm), "final" if final else "fit"
    fit = partial(_fitted, fits, arm, index)
    fresh = fit(kind, settings, None) if asked.compare else None
    found, why = None, _unable(plan, arm)
    if not why:
        try:
            more = refined(method, settings, asked.rounds or None)
            found = fit(_KINDS[kind], {**settings, **more}, Before(old.model, {}))
        except NotSupported as error:
            why = str(error)
        except Refused as error:
            if error.code not in UNABLE:
                raise
            why = str(error).rstrip(".")
    if found is None:
        found = fresh = fresh or fit(kind, settings, None)
    row = row_of(arm, name, names, why, found, fresh)
    row |= {"difference": None, "divergence": None, "membership": None}
    if fresh is not None and not why:
        models = {"before": old.model, "after": found[0].model, "new": fresh[0].model}
        row["divergence"] = divergences(models)
    return Made(name, arm, found[0], old, why, row)


def _unable(plan: Plan, arm: Arm) -> str:
    """Return why a model cannot be made from what hospitals kept, or ""."""
    method = registry.find(arm.method)
    if method.forget is None:
        return f"method {method.name!r} keeps nothing of single sites"
    if plan.privacy.dp is not None:
        return "a private fit spends its ε again in any further round"
    if keeps(arm) and not plan.keep:
        return "the study did not ask hospitals to keep their parts (keep: true)"
    return ""


def _fitted(
    fits: NetworkFits, arm: Arm, index: int, kind: str, given: Mapping[str, Any],
    before: Before | None,
) -> tuple[Run, float]:  # fmt: skip
    """Return one fit over the sites that stay, and its seconds."""
    session = Session(kind, 0, index)
    seed = seed_of(fits.plan, FINAL if kind in ("final", _KINDS["final"]) else 0)
    problem = replace(fits.terms.problem, own=fits.own)
    began = time.perf_counter()
    try:
        with fits.session(session) as open_:
            run = fit_over(
                open_.fed, problem, registry.find(arm.method), given, arm.preprocess, seed,
                open_.trail, every=True, before=before and before.model,
            )  # fmt: skip
    except NotSupported:
        fits.forget(session)
        raise
    except Refused as error:
        if error.code in UNABLE:
            fits.forget(session)
        raise
    fits.forget(session)
    return run, time.perf_counter() - began


def _network(terms: Terms, sites: Sites) -> dict[str, Any]:
    """Return what forget.json says of the network."""
    asked = terms.plan.forget
    assert asked is not None
    told = [{k: w[k] for k in ("site", "at", "reason", "by")} for w in asked.withdrawals]
    return {
        "hash": terms.hash, "of": asked.of, "sites": list(sites.names),
        "absent": dict(sites.absent), "withdrawals": told,
    }  # fmt: skip


def _write_study(terms: Terms, out: Path) -> None:
    """Write the study and its dictionary, as a run over a network does."""
    content = dict(terms.plan.content)
    content["data"] = {
        "source": terms.plan.source, "dictionary": "dictionary.yaml", **content["data"],
    }  # fmt: skip
    for name, text in (("study.yaml", content), ("dictionary.yaml", terms.dictionary_content)):
        try:
            write_text(out / name, yaml.safe_dump(dict(text), sort_keys=False, allow_unicode=True))
        except OSError as error:
            raise FedcohortError(f"{out / name}: {error.strerror}") from None
