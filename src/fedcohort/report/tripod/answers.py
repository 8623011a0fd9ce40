"""A run's answers to TRIPOD+AI items (`items`): a sentence or two, or None if unknown.

Every answer is read from results.json; none is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.report import hidden_counts, words
from fedcohort.report.kinds import kind_of
from fedcohort.report.modelling import imputed
from fedcohort.report.run import Run


def title(run: Run) -> str | None:
    """Item 1, title."""
    outcome = words.listed([str(c) for c in run.mapping("outcome").get("columns") or ()])
    return (
        f"Development and internal evaluation of models that predict {outcome}."
        if outcome
        else None
    )


def objective(run: Run) -> str | None:
    """Item 4, objectives."""
    question = str(run.results.get("question") or "").strip()
    return f"{question} Development with internal evaluation." if question else None


def source(run: Run) -> str | None:
    """Item 5a, the source of the data."""
    data = run.mapping("data")
    if "rows" not in data:
        return None
    events = words.number(data.get("events"))
    held = f", {words.count(events)} of them with the event" if events == events else ""
    about = " ".join(str(data.get(k) or "") for k in ("description", "licence")).strip()
    source = words.of(words.number(data["rows"]), "row")
    return f"{data.get('source')}: {source}{held}. {about}".strip()


def centres(run: Run) -> str | None:
    """Item 6a, participants."""
    named = [f"{t}: {words.of(len(run.sites(s)), 'site')}" for s, t in run.scenarios.items()]
    return "; ".join(named) + "." if any(run.sites(s) for s in run.scenarios) else None


def eligible(run: Run) -> str | None:
    """Item 6b, participants."""
    out = [
        f"{f.get('stage')}: {_rows(f)}"
        for f in run.mapping("cohort").get("flow") or ()
        if str(f.get("stage", "")).startswith("excluded") and f.get("site") is None
    ]
    if left := words.sites_left_out(run.mapping("data").get("sites_left_out") or ()):
        out.append(f"sites left out: {left}")
    return "; ".join(out) + "." if out else None


def _rows(stage: Mapping[str, Any]) -> str:
    """Return a stage's rows, or that a site hides its few."""
    n = words.number(stage.get("rows"))
    return words.of(n, "row") if n == n else "rows of hidden number"


def preparation(run: Run) -> str | None:
    """Item 7, data preparation."""
    if not run.arms:
        return None
    keys = ("impute", "scale")
    done = {k: sorted({str(v) for a in run.arms if (v := a.settings.get(k))}) for k in keys}
    how = words.value({k: v for k, v in done.items() if v})
    return (
        f"Each site's table was checked against the data dictionary before anything was computed. "
        f"Preprocessing was fitted by sums over sites, on training rows only: {how}."
    )


def outcome(run: Run) -> str | None:
    """Item 8a, outcome."""
    outcome = run.mapping("outcome")
    names = [str(c) for c in outcome.get("columns") or ()]
    levels = [str(level) for level in outcome.get("levels") or ()]
    known = str(outcome.get("type") or outcome.get("kind"))
    kind = {
        "survival": "Time to an event",
        "classification": "Yes or no",
        "category": f"One of {len(levels)} classes ({words.listed(levels)})",
        "ordinal": f"One of {len(levels)} ordered classes ({words.listed(levels)}, the lowest "
        "first)",
        "continuous": "A number",
        "count": "A count",
    }.get(known, known)
    kind += f", in {run.unit}" if run.unit else ""
    noun = "column" if len(names) == 1 else "columns"
    return f"{kind}: {noun} {words.listed(names)} of the tables." if names else None


def predictors(run: Run) -> str | None:
    """Item 9a, predictors."""
    features = [str(f) for f in run.mapping("data").get("features") or ()]
    if not features:
        return None
    return (
        f"All {len(features)} usable columns of the dictionary were candidates; the software "
        f"picked none by its relation to the outcome."
    )


def defined(run: Run) -> str | None:
    """Item 9b, predictors."""
    variables = run.mapping("cohort").get("variables") or ()
    known = {str(v.get("name")) for v in variables}
    return f"Types, units and levels of {len(known)} columns: Table 1." if known else None


def size(run: Run) -> str | None:
    """Item 10, sample size."""
    data, fraction = run.mapping("data"), run.test_fraction
    rows, events = words.number(data.get("rows")), words.number(data.get("events"))
    p = len(data.get("features") or ())
    if not (rows == rows and p):
        return None
    per = f", {words.fixed(events * (1 - fraction) / p, 1)} events for each candidate column"
    return (
        f"All {words.count(rows)} rows were used; {words.percent(1 - fraction)} to develop"
        f"{per if events == events else ''}{_and_finally(run)}."
    )


def _and_finally(run: Run) -> str:
    """Return that final models take all rows, where they do."""
    final = any(run.final(a.name) is not None for a in run.together)
    return ", and all for the final model, which is not evaluated itself" * final


def missing(run: Run) -> str | None:
    """Item 11, missing data."""
    found = hidden_counts.holes(run.mapping("cohort").get("variables") or ())
    methods = imputed(run.arms)
    if not (found.columns and methods):
        return None
    left_out = eligible(run)
    several = len(methods) > 1
    how = ", ".join(
        words.spaced(method) + f" ({words.listed(titles)})" * several
        for method, titles in sorted(methods.items())
    )
    how += "" if {*methods} == {"none"} else ", fitted on training rows only"
    return (
        f"{_holes(found)} (Table 1); imputation: {how}."
        f"{f' Left out: {left_out}' if left_out else ' No row was left out.'}"
    )


def _holes(found: hidden_counts.Holes) -> str:
    """Return how many columns have missing values, and of how many that is hidden."""
    columns = words.of(found.columns, "column")
    if found.hidden == found.columns:
        return f"How many values are missing is hidden in all of {columns}"
    said = f"{found.some} of {columns} have missing values"
    more = f"{found.hidden}{' more' if found.some else ''}"
    return f"{said}; for {more} the count is hidden" if found.hidden else said


def partition(run: Run) -> str | None:
    """Item 12a, analysis."""
    evaluate = run.mapping("evaluate")
    if "test_fraction" not in evaluate:
        return None
    return (
        f"{words.percent(run.test_fraction)} of the rows were set aside blind, "
        f"{words.of(words.number(evaluate.get('repeats')), 'time')} at random; everything else, "
        f"preprocessing and tuning included, saw the other rows only."
    )


def handled(run: Run) -> str | None:
    """Item 12b, analysis."""
    scales = sorted({str(a.settings.get("scale")) for a in run.arms if a.settings.get("scale")})
    if not scales:
        return None
    return (
        f"Numbers enter as they are or scaled ({words.listed(scales)}), without splines; "
        f"categories one-hot, with the first level as reference."
    )


def model(run: Run) -> str | None:
    """Item 12c, analysis."""
    named = [f"{a.title} ({a.method})" for a in run.arms]
    tuned = sorted({str(t["arm"]) for t in run.rows("tuning")})
    how = (
        f" Tuned on training sites only: {words.listed(tuned)}." if tuned else " Nothing was tuned."
    )
    return (
        f"{words.listed(named)}.{how} Settings of every arm: section Settings." if named else None
    )


def clusters(run: Run) -> str | None:
    """Item 12d, analysis."""
    if run.rows("heterogeneity"):
        return "Performance by centre, with a random-effects mean, I² and prediction interval."
    if run.lower is not None:
        return "Each site's own model against the common ones, by site."
    return None


def measures(run: Run) -> str | None:
    """Item 12e, analysis."""
    labels = [words.metric(m).label for m in run.metrics]
    repeats = run.mapping("evaluate").get("intervals") == "repeats"
    kind = "an interval over repeats" if repeats else "a bootstrap interval over patients"
    utility = "Clinical utility (decision curves) is not computed."
    if run.rows("decision"):
        utility = "Clinical utility: net benefit by threshold, in section Decision curves."
    return f"{words.listed(labels)}, each with {kind}. {utility}" if labels else None


def calculated(run: Run) -> str | None:
    """Item 12g, analysis."""
    if not run.arms:
        return None
    return (
        "By `fedcohort predict MODEL_DIR FILE`; models/ holds the arrays and the preprocessing of "
        "each arm that trains together."
    )


def imbalance(run: Run) -> str | None:
    """Item 13, class imbalance."""
    if not run.kind.shares:
        return "There are no classes: the outcome is a number."
    weighted = [a.title for a in run.arms if a.settings.get("class_weight") == "balanced"]
    if weighted:
        return f"Rows were weighted so that all classes count alike: {words.listed(weighted)}."
    return "None was used." if run.arms else None


def output(run: Run) -> str | None:
    """Item 15, model output."""
    return kind_of(str(run.results.get("task")), run.mapping("outcome")).output


def same(run: Run) -> str | None:
    """Item 16, training and evaluation."""
    if "test_fraction" not in run.mapping("evaluate"):
        return None
    return "None: both are random parts of the same tables. This is internal evaluation."


def ethics(run: Run) -> str | None:
    """Item 17, ethics: what the study file says of it; consent is for a person to add."""
    told = run.mapping("governance")
    said = [("Ethics number", told.get("ethics")), ("legal basis", told.get("legal_basis"))]
    return "; ".join(f"{name}: {text}" for name, text in said if text) or None


def code(run: Run) -> str | None:
    """Item 18f, open science."""
    version = run.mapping("versions").get("fedcohort")
    command = str(run.results.get("command") or "")
    if not (version and command):
        return None
    return f"fedcohort {version} (Apache-2.0), seed {run.results.get('seed')}: {command}"


def flow(run: Run) -> str | None:
    """Item 20a, participants."""
    cohort = run.mapping("cohort")
    if not (cohort.get("flow") and cohort.get("variables")):
        return None
    followed = "outcome and follow-up" if run.task == "survival" else "the outcome"
    return f"Section Cohort; {followed} in Table 1."


def table_one(run: Run) -> str | None:
    """Item 20b, participants."""
    return (
        "Table 1, by site, with missing values." if run.mapping("cohort").get("variables") else None
    )


def analysed(run: Run) -> str | None:
    """Item 21, development."""
    data = run.mapping("data")
    rows, events = words.number(data.get("rows")), words.number(data.get("events"))
    if rows != rows:
        return None
    held = (
        f" and {words.count(round(events * (1 - run.test_fraction)))} events"
        if events == events
        else ""
    )
    developed = words.count(round(rows * (1 - run.test_fraction)))
    return (
        f"About {developed} rows{held} to develop, the rest to evaluate, in each repeat"
        f"{_and_finally(run)}."
    )


def specified(run: Run) -> str | None:
    """Item 22, specification."""
    if not run.arms:
        return None
    shown = "Coefficients in full: section Coefficients. " if run.rows("coefficients") else ""
    return (
        f"{shown}The models of arms that train together, with their preprocessing: models/, as "
        f"safetensors and JSON."
    )


def performance(run: Run) -> str | None:
    """Item 23a, performance."""
    return (
        f"Sections The gap, {run.kind.performance} and Calibration, with intervals; subgroups are "
        "not split."
        if run.rows("summary")
        else None
    )


def heterogeneity(run: Run) -> str | None:
    """Item 23b, performance."""
    return "Section Centres." if run.rows("heterogeneity") else None


def limits(run: Run) -> str | None:
    """Item 26, limitations."""
    if "test_fraction" not in run.mapping("evaluate"):
        return None
    return (
        "Evaluated on rows of the same sources only; another hospital or period needs its own "
        "evaluation."
    )


def poor_input(run: Run) -> str | None:
    """Item 27a, usability."""
    if not run.arms:
        return None
    ways = imputed(run.together)
    kept = ways.pop("none", [])
    filled = "fills missing values as in the fit"
    if kept:
        whose = f"; {words.listed(kept)} takes them as missing" * bool(ways)
        filled = f"{filled}{whose}" if ways else "leaves missing values to the model, as in the fit"
    return (
        f"`fedcohort predict` checks a table against the dictionary, names the rows that it cannot "
        f"take, and {filled}."
    )
