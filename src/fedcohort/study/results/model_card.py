"""The model card: one page for a saved model, in Markdown.

After Mitchell et al., "Model cards for model reporting", FAT* 2019. The run fills in what it knows;
italics ask the responsible people for the rest.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedcohort.protocol import registry
from fedcohort.report import modelling, words
from fedcohort.report.kinds import kind_of
from fedcohort.report.modelling import is_posterior, penalty_of, scale_of, stepped
from fedcohort.report.sections import parameters
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.run import private
from fedcohort.study.run.pieces import TOLD
from fedcohort.version import VERSION

#: Metrics with the unit of the outcome.
IN_UNIT = ("rmse", "mae", "calibration_intercept")
_SHRUNKEN = (
    "These effects are shrunken: the fit has a penalty ({}), which draws them towards none. They "
    "serve prediction, and are no estimates of the effects; what stands around them are standard "
    "errors of the penalised fit, no confidence intervals."
)
_EXPLAINED = (
    "The report shows mean Shapley values of each covariate and the mean prediction by its value, "
    "under “Effects in trees”; results.json has them as `explained`."
)
_POSTERIOR = (
    "These effects are a posterior: what the prior and the data say together. An interval holds "
    "the effect with the stated probability; P(> 0) is the probability that the coefficient is "
    "above 0, and not a p-value: near 0 the coefficient is almost surely below 0."
)
_ASK = "*To be written by the people responsible for the model.*"
#: Note on pooled levels: their names, and the rows below which a level is pooled.
POOLED = "other levels: {} (fewer than {} rows each, or the next rarest; pooled)"


def card(plan: Plan, arm: Arm, results: Mapping[str, Any]) -> str:
    """Return the model card of an arm: the model, its training data, its performance."""
    declared = next(d for d in results["declared"] if d["arm"] == arm.name)
    first = plan.scenarios[0].name
    chosen = modelling.tuned(_of_model(results, "tuning", arm, first))
    shown = {**declared["settings"], **chosen}
    parts = [
        f"# {arm.title}: {plan.study}",
        plan.question,
        _what(plan, arm, declared, results, modelling.particulars(declared["settings"], chosen)),
        "## Intended use\n\n" + _ASK,
        _inputs(results, arm, first, declared["settings"]),
        _performance(results, arm, first),
        _by_class(results, arm, first),
        _centres(results, arm, first),
        _effects(results, arm, first),
        _splits(results, arm, first),
        f"## What left the sites\n\n{declared['reveals']}",
        _privacy(plan, arm, results),
        _use(arm, results),
        "## Settings\n\n" + "\n".join(f"- {k}: {words.value(v)}" for k, v in shown.items()),
        "## Limits\n\n"
        "The model was evaluated on rows of the same source. Before it is used for patients of "
        "another hospital or period, evaluate it there. It is no medical device.\n\n"
        "Groups of patients for whom it must not be used, known biases: " + _ASK,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _outcome(results: Mapping[str, Any]) -> list[str]:
    """Return the outcome's columns; the entry time is marked."""
    entry = results["outcome"].get("entry")
    columns = results["outcome"]["columns"]
    return [f"{c} (when observation began)" if c == entry else c for c in columns]


def _of_model(
    results: Mapping[str, Any], key: str, arm: Arm, scenario: str
) -> list[Mapping[str, Any]]:
    """Return the rows of a list of results.json about the saved model."""
    if key in TOLD and (final := _final(results, arm)):
        return list(final[key])
    return [
        row
        for row in results.get(key) or ()
        if (row["arm"], row["scenario"], row.get("repeat", 0)) == (arm.name, scenario, 0)
    ]


def _final(results: Mapping[str, Any], arm: Arm) -> Mapping[str, Any] | None:
    """Return the row of the arm's final fit; None without one."""
    done = (f for f in results.get("final") or () if f["arm"] == arm.name)
    return next((f for f in done if f["status"] == "done"), None)


def _rows_seen(plan: Plan, arm: Arm, results: Mapping[str, Any]) -> str:
    """Return the model's training rows, and the consequence for its evaluation."""
    data, events = results["data"], results["data"].get("events")
    held = f", {events} with the event" if events is not None else ""
    if _final(results, arm):
        seen = f"all {data['rows']} rows{held}{_absent(results, arm)}"
        own = [r for r in results["arms"] if r["arm"] == arm.name]
        if all(r["status"] != "done" for r in own):
            return f"{seen}. How good such a model is was not measured: no fit could be judged"
        return (
            f"{seen}. How good such a model is was measured beforehand, by fits to "
            f"{100 * (1 - plan.test_fraction):.0f} % of the rows on the others: no figure "
            f"below is of rows that the judged fit has seen"
        )
    share = 100 * (1 - plan.test_fraction)
    return f"the training rows of the first repeat ({share:.0f} % of {data['rows']} rows{held})"


def _absent(results: Mapping[str, Any], arm: Arm) -> str:
    """Return the sites whose rows are missing in sums of the final fit; "" for none."""
    lacking = words.absent_from_final(results.get("missing") or (), arm.name)
    if not lacking:
        return ""
    named = words.listed([_cell(site) for site in lacking])
    return f", but that some or all of its sums lack those of {named}, away at the time"


def _what(
    plan: Plan,
    arm: Arm,
    declared: Mapping[str, Any],
    results: Mapping[str, Any],
    particulars: Sequence[str],
) -> str:
    """Return the model's method, particular settings, and training data."""
    method = registry.find(arm.method)
    data = results["data"]
    left = data.get("sites_left_out") or ()
    sites = (results.get("network") or {}).get("sites")
    source = (
        f"the rows of {', '.join(map(_cell, sites))}, at these hospitals"
        if sites
        else f"{data['source']}, scenario {plan.scenarios[0].name}"
        + ", rows made worse on purpose: not for use" * plan.scenarios[0].changed
    )
    return "\n".join(
        [
            f"- Method: {method.title} (`{method.name}`). Source: {method.paper}",
            *([f"- In particular: {_cell('; '.join(particulars))}"] if particulars else []),
            f"- Trained on: {source}, {_rows_seen(plan, arm, results)}",
            *([f"- Sites left out: {_cell(out)}"] if (out := words.sites_left_out(left)) else []),
            *(f"- Units accepted: {_cell(text)}" for text in data.get("units") or ()),
            f"- Outcome: {', '.join(_outcome(results)) or 'none'}"
            + (f" ({unit})" if (unit := results["outcome"].get("unit")) else "")
            + _classes(results["outcome"])
            + _judges(results),
            f"- Role in the study: {declared['role']}",
            f"- Seed: {plan.seed}; fedcohort {VERSION}",
        ]
    )


def _privacy(plan: Plan, arm: Arm, results: Mapping[str, Any]) -> str:
    """Return the privacy guarantee of the model; "" without noise."""
    dp = plan.privacy.dp
    if dp is None or arm.scope != "sites":
        return ""
    method = registry.find(arm.method)
    said = private.noise_note(method, method.configure(arm.configured()), dp, results["noise"])
    unit = "hospital" if dp.unit == "site" else "patient"
    warning = (
        "\n\n**Whoever knows the seed, which stands above, can take the noise off. Do not give "
        "this model away as private.**"
    )
    return (
        f"## Privacy\n\n- ε {dp.epsilon:g}, δ {dp.delta:g} of one {unit}, for this fit\n"
        f"- Mechanism: {said['mechanism']}\n"
        f"- {said['note'][0].upper()}{said['note'][1:]}\n"
        "- Not covered: Table 1 and the counts of rows and events, exact of all rows that were "
        "analysed; metrics, exact of rows held out" + warning * (said["noise"] == "seed")
    )


def _inputs(
    results: Mapping[str, Any], arm: Arm, scenario: str, settings: Mapping[str, Any]
) -> str:
    """Return the table of the model's columns, and the columns left out."""
    why = {r["column"]: r["reason"] for r in _of_model(results, "dropped", arm, scenario)}
    weights = str(settings.get("weights") or "")
    read = [f for f in results["data"]["features"] if f not in why and f != weights]
    named = ", ".join(f"{_cell(column)} ({reason})" for column, reason in why.items())
    more = [f"Left out: {named}."] if named else []
    if weights:
        more.append(f"{_cell(weights)} weighted the rows in training, and is not read.")
    return "\n\n".join(["## Inputs", _columns(results, read, settings), *more])


def _columns(
    results: Mapping[str, Any], features: Sequence[str], settings: Mapping[str, Any]
) -> str:
    """Return the table of columns, with the roles of offset and strata."""
    roles = {
        str(settings.get("offset") or ""): "offset, added as it is",
        str(settings.get("strata") or ""): "strata",
    }
    known = [
        v
        for v in (results.get("cohort") or {}).get("variables") or ()
        if v.get("site") is None and v["name"] in features
    ]
    if not known:
        return ", ".join(_role(f, roles) for f in features)
    rows = [
        (
            _role(v["name"], roles),
            v.get("type", ""),
            v.get("unit") or "",
            ", ".join(v.get("levels") or ()),
        )
        for v in known
    ]
    return _table(("column", "type", "unit", "levels"), rows)


def _role(name: str, roles: Mapping[str, str]) -> str:
    """Return a column's name, with its role if it is no covariate."""
    return f"{name} ({roles[name]})" if name in roles else name


def _performance(results: Mapping[str, Any], arm: Arm, scenario: str) -> str:
    unit = results["outcome"].get("unit")
    rows = [
        (_in_unit(s["metric"], unit), _number(s["mean"]), _interval(s), str(s["n"]))
        for s in results["summary"]
        if s["arm"] == arm.name and s["scenario"] == scenario
    ]
    head = ("metric", "mean", "95 % interval", "repeats")
    return f"## Evaluation on blind test rows, scenario {scenario}\n\n{_table(head, rows)}"


def _classes(outcome: Mapping[str, Any]) -> str:
    """Return the classes of an outcome of several; "" for others."""
    levels = outcome.get("levels") or ()
    order = ", in this order" if outcome.get("type") == "ordinal" else ""
    return f": {len(levels)} classes{order}: {', '.join(map(_cell, levels))}" if levels else ""


def _by_class(results: Mapping[str, Any], arm: Arm, scenario: str) -> str:
    """Return the first repeat's performance by class; "" unless there are several."""
    mine = _of_model(results, "by_class", arm, scenario)
    if not mine:
        return ""
    rows = [
        (
            r["class"],
            _count(r["n"]),
            *(_number(r[k]) for k in ("observed", "predicted", "auc")),
            _interval(r),
            _number(r["slope"]),
        )
        for r in mine
    ]
    head = (
        "class",
        "rows",
        "observed share",
        "mean probability",
        "AUC against the rest",
        "95 % interval",
        "calibration slope",
    )
    return f"## By class\n\n{_table(head, rows)}"


def _in_unit(metric: str, unit: str | None) -> str:
    """Return a metric's name, with the outcome's unit if it has that unit."""
    return f"{metric} ({unit})" if unit and metric in IN_UNIT else metric


def _centres(results: Mapping[str, Any], arm: Arm, scenario: str) -> str:
    """Return the first repeat's performance by natural centre; "" without."""
    mine = [
        r
        for r in results.get("by_centre") or ()
        if r["arm"] == arm.name and r["scenario"] == scenario
    ]
    if not mine:
        return ""
    rows = [
        (r["site"], r["metric"], _number(r["value"]), _interval(r), _count(r["n"])) for r in mine
    ]
    head = ("centre", "metric", "value", "95 % interval", "rows")
    return f"## By centre\n\n{_table(head, rows)}"


def _effects(results: Mapping[str, Any], arm: Arm, scenario: str) -> str:
    mine = _of_model(results, "coefficients", arm, scenario)
    if not mine:
        return ""
    settings = next(d for d in results["declared"] if d["arm"] == arm.name)["settings"]
    scale = scale_of(settings, results.get("preprocess") or {})
    mine = stepped(mine, scale, (results.get("cohort") or {}).get("variables") or ())
    ratio = next((k for k in mine[0] if k.endswith("_ratio")), None)
    effect, level = words.effect, _level(results, arm)
    penalty = penalty_of(mine)
    shrunken, around = "shrunken " * bool(penalty), f"{level} interval"
    if penalty:
        around = parameters.penalised_bar(level)
    of = f"{shrunken}coefficient"
    if posterior := is_posterior(mine):
        of, around = "posterior mean", parameters.credible(level)
    if ratio is None:
        rows = [(_named(r), effect(r["coefficient"]), _ends(r, effect)) for r in mine]
        head = ("covariate", of, around)
    else:
        for_ratio = (
            {k: _exp(r.get(k), r.get("factor", 1.0)) for k in ("low", "high")} for r in mine
        )
        rows = [
            (
                _term(r),
                effect(r["coefficient"]),
                _ratio(r.get(ratio)) + (f" {r['step']}" if r.get("step") else ""),
                _ends(ends, _ratio),
            )
            for r, ends in zip(mine, for_ratio, strict=True)
        ]
        name = ratio.replace("_", " ")
        ends_of = around if penalty else f"{around} of the ratio"
        head = ("covariate", of, f"{shrunken}{name}", ends_of)
    if posterior:
        head = (*head, "P(> 0)")
        rows = [
            (*row, words.probability(r.get("above_0"))) for row, r in zip(rows, mine, strict=True)
        ]
    if any(r.get("grid_error") is not None for r in mine):
        head = (*head, "grid error, in standard errors")
        rows = [(*row, _number(r.get("grid_error"))) for row, r in zip(rows, mine, strict=True)]
    if any(r.get("fmi") is not None for r in mine):
        head = (*head, "degrees of freedom", "missing information")
        rows = [
            (*row, f"{r['df']:.0f}" if r.get("df") else "", words.percent(words.number(r["fmi"])))
            for row, r in zip(rows, mine, strict=True)
        ]
    pooled = [
        f"{_cell(r['column'])}, {POOLED.format(', '.join(map(_cell, r['levels'])), r['least'])}"
        for r in _of_model(results, "pooled", arm, scenario)
    ]
    rest = _parameters(results, arm, scenario, around, posterior=posterior)
    told = [_SHRUNKEN.format(penalty)] if penalty else [_POSTERIOR] * posterior
    return "\n\n".join(["## Effects", *told, _table(head, rows), *pooled, *filter(None, rest)])


def _splits(results: Mapping[str, Any], arm: Arm, scenario: str) -> str:
    """Return the table of the covariates that trees split; "" without trees."""
    mine = _of_model(results, "splits", arm, scenario)
    if not mine:
        return ""
    rows = [(r["covariate"], _number(r["share"]), _count(r["weight"])) for r in mine]
    head = ("covariate", "share of the reduction of the loss", "splits")
    about = [_EXPLAINED] if _of_model(results, "explained", arm, scenario) else []
    return "\n\n".join(["## Splits of trees", _table(head, rows), *about])


def _named(row: Mapping[str, Any]) -> str:
    """Return a covariate with the step that its effect is for."""
    return f"{_term(row)}, {row['step']}" if row.get("step") else _term(row)


def _term(row: Mapping[str, Any]) -> str:
    """Return a covariate, with the class that its effect is on and the class compared with."""
    of = f"{row['class']} against {row['reference']}: " if row.get("class") else ""
    return f"{of}{row['covariate']}"


def _parameters(
    results: Mapping[str, Any], arm: Arm, scenario: str, around: str, *, posterior: bool
) -> list[str]:
    """Return the table of the saved model's other parameters; its notes below."""
    mine = _of_model(results, "parameters", arm, scenario)
    if not mine:
        return []
    rows = [
        (
            parameters.name(r),
            words.effect(r["value"]),
            words.effect(r.get("standard_error")),
            _ends(r, words.effect),
            words.p_value(r.get("p")),
        )
        for r in mine
        if r["value"] is not None and not parameters.is_check(r)
    ]
    head = ("parameter", "value", "standard error", around, "p")
    if posterior:
        head, rows = ("parameter", "value", "posterior SD", around), [row[:4] for row in rows]
    notes = [f"- {_cell(parameters.name(r))}: {_cell(r['note'])}" for r in mine if r.get("note")]
    checks = [
        (parameters.name(r), words.effect(r["value"]), _ends(r, words.effect),
         words.fixed(float(r["share_above"]), 3))
        for r in mine
        if parameters.is_check(r)
    ]  # fmt: skip
    drawn = [f"### {parameters.CHECKS}", _table(parameters.CHECKED, checks)] if checks else []
    shown = _table(head, rows) if rows else ""
    return [f"### {parameters.CAPTION}", shown, "\n".join(notes), *drawn]


def _level(results: Mapping[str, Any], arm: Arm) -> str:
    """Return the coverage of the intervals of an arm's coefficients."""
    declared = next(d for d in results["declared"] if d["arm"] == arm.name)
    return parameters.coverage(declared["settings"])


def _judges(results: Mapping[str, Any]) -> str:
    """Return the note on an outcome that no fit has seen; "" for any other."""
    task, outcome = results["task"], results["outcome"]
    if not (judged := kind_of(task).judged) or not outcome["columns"]:
        return ""
    if task == "synthesis":
        return " (among the columns that are drawn)"
    if task == "latent" and outcome["kind"] == "survival":
        return " (left aside; no fit has seen it)"
    return f" (judges the {judged}; no fit has seen it)"


def _use(arm: Arm, results: Mapping[str, Any]) -> str:
    """Return how to apply the model."""
    if results["task"] == "synthesis":
        return (
            f"## Use\n\n    fedcohort synthesise models/{arm.name} --n 1000 --out patients.csv\n\n"
            f"draws 1,000 virtual patients, with a page on their quality and privacy. Rows of a "
            f"model without differential privacy are to be treated as patient data."
        )
    what = kind_of(str(results["task"]), results["outcome"]).written
    if results["task"] == "imputation":
        return (
            f"## Use\n\n    fedcohort impute models/{arm.name} PATIENTS.csv --out FILLED.csv\n\n"
            f"fills missing cells as `model.json` says, and leaves known cells as they are."
        )
    return (
        f"## Use\n\n    fedcohort predict models/{arm.name} PATIENTS.csv\n\n"
        f"checks the table against the dictionary in `model.json` and writes a {what} for each row."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    """Return text as a Markdown table cell, without table delimiters and HTML."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def _exp(value: Any, factor: float) -> float | None:
    """Return exp of a bound of a coefficient for its step; None if it overflows."""
    return None if value is None or abs(factor * value) > 700 else math.exp(factor * value)


def _number(value: Any) -> str:
    return words.fixed(value)


def _ratio(value: Any) -> str:
    """Return a ratio with three decimals, or more if it is near 0 or 1."""
    x = words.number(value)
    return words.ratio(x) if abs(x - 1) < 1e-3 and x != 1 else words.effect(x)


def _ends(row: Mapping[str, Any], shown: Callable[[Any], str]) -> str:
    low, high = shown(row.get("low")), shown(row.get("high"))
    return words.MISSING if words.MISSING in (low, high) else f"{low} to {high}"


def _count(value: int | None) -> str:
    return "–" if value is None else str(value)


def _interval(row: Mapping[str, Any]) -> str:
    return _ends(row, _number)
