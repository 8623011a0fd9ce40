"""Data descriptions in the files of a study over a network, and omitted results (`left_out`).

Everything about patients comes from two sessions: Table 1 (`data.describe`) and `counting`. If a
site hides its own events, those of all sites are hidden, also in Table 1.

Revealed: see `data.describe` and `counting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fedcohort.data import describe, prepare
from fedcohort.data.check import FEWEST, Middle, conversions_for, differing
from fedcohort.data.describe.summary import Summary
from fedcohort.data.outcome import Category, Survival, columns_of
from fedcohort.data.words import first_of
from fedcohort.protocol import DataError, SiteUnavailable, registry
from fedcohort.study.at_site import asking, counting
from fedcohort.study.at_site.sessions import Session
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.consent import consent_of
from fedcohort.study.results.files import About, mark_of, outcome_row, write_all
from fedcohort.study.results.scenarios import scenario_row
from fedcohort.study.results.step_words import step_words
from fedcohort.study.run.extras import asked_of
from fedcohort.study.run.network_fits import COHORT, NetworkFits
from fedcohort.study.run.pieces import tagged, write_text
from fedcohort.study.sites.counts import Shown
from fedcohort.study.sites.sites import Sites

#: Advice if sites seem to have different units.
CONVERT = (
    "Nothing was fitted. Let the site convert it, and submit the study under another name. Or, if "
    "the numbers are right, accept them in the study file (units: [{}]) and submit it; sites then "
    "approve it again."
)


def meet(fits: NetworkFits, sites: Sites) -> dict[str, Any]:
    """Count and describe the rows of all sites, once; every site has to answer.

    Raises
    ------
    SiteUnavailable : a site is away.
    DataError : a site's table does not fit the study, or seems to have other units than the others;
        or a class has no row at any site.
    """
    kept = fits.note(COHORT)
    if kept is not None:
        return kept
    plan, terms = fits.plan, fits.terms
    with fits.session(Session("count")) as open_:
        told = open_.fed.gather(counting.tell_counts, min_cell=plan.min_cell)
        _all(sites, told)
        lines = list(open_.trail.ledger.lines)
    variables = describe.variables_of(terms.dictionary, terms.outcome)
    with fits.session(Session("describe")) as open_:
        fed = open_.fed.awaiting()  # a site answers for one set of sites only: all of them
        one = describe.describe(fed, variables, min_cell=plan.min_cell)
        summaries = one.summaries
        _all(sites, dict.fromkeys(fed.answered))
        lines += open_.trail.ledger.lines
    accepted = _units(terms, summaries)
    _every_class(terms, summaries)
    train, test = counting.published_halves(told)
    told_of = columns_of(terms.outcome)
    secret = set(told_of) if train.closed else set[str]()
    summaries = [
        replace(s, counts=(None,) * len(s.levels)) if s.variable.name in secret and s.site else s
        for s in summaries
    ]
    flow = counting.flow_of(told, plan.exclude)
    found: dict[str, Any] = {
        "flow": flow,
        "variables": [s.to_dict() for s in summaries],
        "suppressed": sum(s.n_hidden for s in summaries) + sum(r["rows"] is None for r in flow),
        "min_cell": plan.min_cell,
        "note": f"All rows that are analysed, at the hospitals that hold them. {one.note}".strip(),
        "steps": step_words((*describe.STEPS, *counting.STEPS)),
        "agreed": None if one.agreed is None else one.agreed.to_dict(),
        "halves": [[dict(half.rows), dict(half.events)] for half in (train, test)],
        **({"units": accepted} if accepted else {}),
    }
    fits.keep(COHORT, found, tagged(lines, "", plan.scenarios[0].name, 0, {0: "describe"}))
    for kind in ("count", "describe"):
        fits.forget(Session(kind))
    return found


def _units(terms: Terms, shown: Sequence[Summary]) -> list[str]:
    """Compare the units of sites by their published quartiles in Table 1, before any fit.

    Returns
    -------
    accepted : notes on columns that the study accepts.

    Raises
    ------
    DataError : a column seems to have another unit at a site, and the study does not accept it.
    """
    columns: dict[str, list[Summary]] = {}
    for one in shown:
        if one.site and one.site != describe.OTHERS and one.quartiles is not None:
            columns.setdefault(one.variable.name, []).append(one)
    accepted: list[str] = []
    wrong: list[tuple[str, str]] = []
    for name, sites in columns.items():
        middles = [
            Middle(s.site or "", s.quartiles, max((s.rows or 0) - (s.missing or 0), FEWEST))
            for s in sites
            if s.quartiles
        ]
        for one in differing(middles, conversions_for(sites[0].variable, terms.outcome)):
            if name in terms.plan.units:
                accepted.append(one.text(name))
            else:
                wrong.append((name, one.text(name)))
    if wrong:
        names = ", ".join(dict.fromkeys(name for name, _ in wrong))
        raise DataError(f"{'; '.join(text for _, text in wrong)}. {CONVERT.format(names)}")
    return accepted


def _every_class(terms: Terms, shown: Sequence[Summary]) -> None:
    """Check that each class of an outcome of several has a row, by Table 1, before any fit.

    Raises
    ------
    DataError : a class has none at any site, and no site hides it.
    """
    y = terms.learnt
    for one in shown if isinstance(y, Category) else ():
        if y is None or one.site is not None or one.variable.name != y.label:
            continue
        gone = [level for level, n in zip(one.levels, one.counts, strict=True) if n == 0]
        if gone:
            raise DataError(
                f"no site has a row of {'class' if len(gone) == 1 else 'classes'} "
                f"{first_of([*map(repr, gone)])} of {y.label!r}, so no model learns "
                f"{'it' if len(gone) == 1 else 'them'}. Nothing was fitted. Take "
                f"{'it' if len(gone) == 1 else 'them'} out of the dictionary, and submit the study "
                f"under another name."
            )


def _all(sites: Sites, told: Mapping[str, Any]) -> None:
    """Check that every site answered.

    Raises
    ------
    SiteUnavailable : a site did not.
    """
    if missing := sorted({*sites.names} - {*told}):
        raise SiteUnavailable(
            f"{', '.join(missing)} did not answer when the cohort was described. This needs all "
            f"sites: bring them back and --resume, or start again without them."
        )


def _events(variables: Iterable[Mapping[str, Any]], event: str) -> int | None:
    """Return total events from Table 1; None if hidden."""
    for line in variables:
        if line["name"] == event and line["site"] is None:
            return line["counts"].get("1")
    return None


def write(
    fits: NetworkFits, sites: Sites, out: Path, seconds: float, command: str
) -> dict[str, Any]:
    """Write all files of a finished study except the report; return the content of results.json."""
    plan, terms = fits.plan, fits.terms
    met = meet(fits, sites)
    met.pop("agreed", None)
    train, test = (
        Shown(rows, events, frozenset(s for s, n in events.items() if n is None))
        for rows, events in (_of_sites(half, sites.names) for half in met.pop("halves"))
    )
    outcome = outcome_row(terms.outcome, terms.dictionary)
    rows = sum(n for half in (train, test) for n in half.rows.values() if n is not None)
    events = None
    if isinstance(terms.outcome, Survival) and not train.closed:
        events = sum(n for half in (train, test) for n in half.events.values() if n is not None)
    elif isinstance(terms.outcome, Survival):
        events = _events(met["variables"], terms.outcome.event)
    scenario = scenario_row(plan.scenarios[0], train)
    first = fits.lines(COHORT).read_text(encoding="utf-8").splitlines(keepends=True)
    more: dict[str, Any] = {}
    for kind in asked_of(plan):
        more[kind] = dict(fits.note(kind) or {})
        met["steps"] |= more[kind].pop("steps")
        first += fits.lines(kind).read_text(encoding="utf-8").splitlines(keepends=True)
    placed = fits.places(0)
    about = About(
        outcome=outcome,
        data={
            "source": plan.source,
            "rows": rows,
            "events": events,
            "features": [v.name for v in terms.dictionary.features(terms.outcome)],
            "description": terms.dictionary.description or terms.dictionary.title,
            "licence": terms.dictionary.licence,
            **({"units": units} if (units := met.pop("units", [])) else {}),
        },
        scenarios=[scenario],
        cohort=met,
        test_mark=mark_of(plan, rows, events, outcome, met["variables"], shown=not train.closed),
        test=test,
        first=first,
        own={} if fits.own is None else fits.own.told(plan.coordinator_data),
        declared=_declared(fits),
        more={
            "network": {
                "hash": terms.hash,
                "sites": list(sites.names),
                "absent": dict(sites.absent),
            },
            "left_out": left_out(terms),
            "noise": None if plan.privacy.dp is None else sites.noise,
            **consent_of(fits, {s: why for s, why in sites.absent.items() if s in placed}),
            **more,
        },
        intervals="repeats",
        exactness=plan.kind.exactness_of(plan.metrics),
    )
    found = write_all(fits, about, out, seconds, command)
    content = dict(plan.content)
    content["data"] = {"source": plan.source, "dictionary": "dictionary.yaml", **content["data"]}
    for name, text in (("study.yaml", content), ("dictionary.yaml", terms.dictionary_content)):
        write_text(out / name, yaml.safe_dump(dict(text), sort_keys=False, allow_unicode=True))
    return found


def _of_sites(half: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows and events of the sites that are left after a second consent."""
    return [{site: n for site, n in counts.items() if site in names} for counts in half]


def _declared(fits: NetworkFits) -> dict[str, dict[str, Any]]:
    """Return the additions to each arm's declaration over a network."""
    found: dict[str, dict[str, Any]] = {}
    plan = fits.plan
    outcome = fits.terms.outcome
    judging_steps = asking.of_judge(outcome, plan.task, plan.metrics)
    alone = asking.of_alone(outcome, plan.task, plan.metrics)
    for arm in plan.arms:
        method = registry.find(arm.method)
        if arm.scope == "sites":
            steps = step_words((*prepare.STEPS, *method.steps, *judging_steps))
            found[arm.name] = {"steps": steps}
            if plan.kind.note:
                found[arm.name]["note"] = plan.kind.note
            continue
        found[arm.name] = {
            "steps": step_words(alone),
            "reveals": "In training nothing leaves a site: each hospital fits its own rows, and "
            "keeps its model. Only metrics on the hospital's own held-back rows are revealed, in "
            "sums over hospitals.",
            "note": plan.kind.alone,
        }
    return found


#: By part: its name in the report, and why it is absent.
PARTS: dict[str, tuple[str, str]] = {
    "calibration": (
        "Calibration by group",
        "The edges of groups of predictions are values of single patients. The slope and the "
        "intercept are given (calibration_slope, calibration_intercept).",
    ),
    "residuals": (
        "Residuals",
        "Quartiles of residuals are values of single patients. Their mean size is given (rmse, "
        "mae).",
    ),
    "importance": (
        "Importance",
        "A column is permuted over the patients of all hospitals, which needs all rows in one "
        "place.",
    ),
    "silhouette": (
        "Silhouette",
        "It compares all pairs of patients, which needs all rows in one place; "
        "simplified_silhouette replaces it.",
    ),
    "agreement": (
        "Agreement with pooled data",
        "It compares with the clusters of one table with all rows.",
    ),
    "at_risk": (
        "Numbers at risk by cluster",
        "Deaths and censorings are counted in intervals of time with several deaths, not at round "
        "times.",
    ),
    "latent_filled": (
        "Filled in",
        "It compares true and imputed values of the patients of all hospitals, which needs all "
        "rows in one place.",
    ),
    "latent_map": (
        "Latent space",
        "It places the patients of all hospitals on one map, which needs all rows in one place.",
    ),
    "latent_accuracy": (
        "Classes told from latent coordinates",
        "A discriminant needs sums of training rows by class, a second set beside those of the "
        "fit.",
    ),
    "virtual_scores": (
        "Models of virtual patients",
        "They are tested beside models of the training rows, which needs these in one place.",
    ),
    "virtual_privacy": (
        "Distances, copies, and attacks on membership",
        "They compare virtual rows with all training rows, which needs these in one place.",
    ),
    "virtual_curves": (
        "Survival of virtual patients",
        "It is compared with the survival of all blind patients, which needs them in one place.",
    ),
    "imputation_errors": (
        "Errors by column",
        "Each hospital hides entries of its own, and tells errors over all columns only.",
    ),
    "draws": (
        "Intervals over patients",
        "The seed of a study is public, so sums of one metric at known weights of the patients "
        "could be solved for single patients. Intervals are over the repeats, if there are three "
        "or more.",
    ),
    "seconds": (
        "Footprint of each hospital",
        "A site does not report its computing time.",
    ),
}  # fmt: skip


def left_out(terms: Terms) -> list[dict[str, Any]]:
    """Return what a network's results omit: arms of the study file, then parts of the results."""
    arms = [vars(arm) for arm in terms.left_out]
    lacking = terms.asked.kind.lacking(terms.outcome, terms.asked.metrics)
    return arms + [
        {"part": part, "title": title, "reason": reason}
        for part, (title, reason) in PARTS.items()
        if part in {*lacking, "draws", "seconds"}
    ]
