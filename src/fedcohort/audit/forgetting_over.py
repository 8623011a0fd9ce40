"""A deployed study's models without some hospitals, over the network of the others.

The coordinator has the old models; what hospitals kept of their fits is at their nodes (`keep:`).
Each model is made by `study.run.network_forget`. Differences of predictions and membership are not
measured: rows are at the hospitals.

Revealed: as `study.run.network_forget`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from fedcohort.audit import forgotten
from fedcohort.audit.forgetting import Made, Origin, divergences, row_of
from fedcohort.audit.rebuilt import Finished
from fedcohort.protocol import FedcohortError
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.terms import Terms
from fedcohort.study.results import saved
from fedcohort.study.run import arithmetic, folder
from fedcohort.study.run.network_fits import NetworkFits
from fedcohort.study.run.network_forget import forget
from fedcohort.study.run.pieces import write_text
from fedcohort.study.run.runner import Event, own_of
from fedcohort.study.sites.sites import Sites


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

    def on_call(session: str, progress: Any) -> None:
        rounds = (progress.round + 1, progress.rounds) if progress.rounds else None
        tell(Event(int(now[1]), len(todo), str(now[0]), rounds, session, progress))

    def work(began: float) -> dict[str, Any]:
        own = own_of(terms, data)
        fits = NetworkFits(terms, sites, out / folder.WORK, out / "models", on_call, debug, own)
        made: list[Made] = []
        for done, (arm, name, final) in enumerate(todo):
            now[:] = [name, done]
            made.append(_made(fits, origin, arm, name, sites.names, final=final))
            tell(Event(done + 1, len(todo), name, None))
        content = forgotten.write(origin, ", ".join(new), made, out, _network(terms, sites))
        _write_study(terms, out)
        return content

    facts = {"study": terms.hash, "sites": list(sites.names)}
    return folder.in_folder(
        out, resume, facts, "the study, its sites or the version", arithmetic.go_on, work
    )


def _made(
    fits: NetworkFits, origin: Origin, arm: Arm, name: str, names: tuple[str, ...], *, final: bool
) -> Made:
    old = saved.read(origin.folder / "models" / name)
    found = forget(fits, arm, old.model, origin.run.settings(arm), final=final)
    row = row_of(arm, name, names, found.why, found.made, found.fresh)
    row |= {"difference": None, "divergence": None, "membership": None}
    if found.fresh is not None and not found.why:
        row["divergence"] = divergences(
            {"before": old.model, "after": found.made.run.model, "new": found.fresh.run.model}
        )
    return Made(name, arm, found.made.run, old, found.why, row)


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
