"""Replies that left each hospital, and the privacy budget.

Files: ledger.jsonl (kind of reply, number, size, readers); results.json, `privacy`, `releases`,
`claims`. Arms without noise, such as bounds, are named: ε does not cover them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import words
from fedcohort.report.disclosure import Sent, description, federated, natural, phases, sent
from fedcohort.report.markup import Markup, h, join, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, key, more


def left(run: Run) -> Section | None:
    """Return a table of replies for each arm, and one of sites; the ledger is read here."""
    lines = federated(run, sent(run.folder))
    if not lines:
        return None
    arms = [a for a in (description(run), *run.arms) if any(s.arm == a.name for s in lines)]
    seen = any(s.verb == "gather" for s in lines)
    intro: list[str | Markup | None] = [
        "Patients' rows stay where they are. What leaves is lists of numbers computed from them, "
        "and every kind of them is here. ",
        _badge("sum"), " replies are used only as a total over all hospitals. ",
    ]  # fmt: skip
    if seen:
        intro += [_badge("gather"), " replies reach the coordinator one hospital at a time. "]
    intro += [_masking(run, lines), _crowded(run)]
    return Section(
        "left",
        "What left",
        "What left each hospital?",
        intro,
        h("div", _arms(arms, lines), _sites(arms, lines), _bounds(run)),
    )


def _masking(run: Run, lines: Sequence[Sent]) -> str:
    """Return in a few sentences whether sums were hidden, by masks or by noise."""
    summed = [s for s in lines if s.verb == "sum"]
    masked, calls = (sum(getattr(s, k) for s in summed) for k in ("masked", "calls"))
    if calls and masked == calls:
        told = "Every total was formed under masks: no hospital's part of it can be read by anyone."
    elif masked:
        told = f"Of these, {words.percent(masked / calls)} were formed under masks."
    else:
        told = "Totals were formed by the coordinating software, not masked by cryptography."
        if run.deployed:
            told += " Whoever runs the coordinator could read each hospital's part of a sum."
    noised = "" if any(s.noise for s in lines) else " No noise was added (no differential privacy)."
    cell = words.number(run.mapping("privacy").get("min_cell"))
    least = f" Smallest count that a released table may hold: {words.count(cell)}." * (cell > 0)
    return told + noised + least


def _crowded(run: Run) -> str:
    """Return models with more free parameters than a tenth of some site's rows."""
    told = [row for row in run.rows("crowded") if row.get("about") != "fit"]
    notes = [f" {row['arm']}: {row['note']}." for row in told]
    return "".join(dict.fromkeys(notes))


def _badge(verb: str, *, masked: bool = False) -> Markup:
    if verb == "sum":
        text = "masked: only the sum" if masked else "only the sum"
        return h("span", text, class_="badge masked" if masked else "badge")
    return h("span", "visible to the coordinator", class_="badge seen")


def _arms(arms: Sequence[Arm], lines: Sequence[Sent]) -> Markup:
    """Return how many kinds of replies each arm has and who sees them, and each kind folded."""
    body: list[list[str | Markup]] = []
    for arm in arms:
        own = [s for s in lines if s.arm == arm.name]
        kinds = {s.step: s for s in own}.values()
        seen = [words.spaced(s.step) for s in kinds if s.verb == "gather"]
        runs = {s.site: s for s in own}.values()
        body.append(
            [
                _name(arm),
                str(len(kinds)),
                words.listed(seen) if seen else "none",
                _range(
                    [sum(s.bytes / s.runs for s in own if s.site == x.site) for x in runs],
                    size=True,
                ),
            ]
        )
    head = [
        "",
        "Kinds of replies",
        "of these seen hospital by hospital",
        "In all, one training run",
    ]
    return join(
        table(head, body, numeric=(1, 3), caption="What one hospital sends"),
        more("Every kind of reply", *(_arm(a, lines) for a in arms)),
    )


def _arm(arm: Arm, lines: Sequence[Sent]) -> Markup:
    """Return one arm's steps: a site's replies in one training run."""
    own = [s for s in lines if s.arm == arm.name]
    body: list[list[str | Markup]] = []
    for step, verb in dict.fromkeys((s.step, s.verb) for s in own):
        here = [s for s in own if (s.step, s.verb) == (step, verb)]
        fields = words.listed(
            [words.spaced(f) for f in dict.fromkeys(f for s in here for f in s.fields)]
        )
        does = arm.steps.get(step)
        masked = all(s.masked == s.calls for s in here)
        body.append(
            [
                h(
                    "span",
                    words.spaced(step),
                    h("small", does) if does else None,
                    h("small", fields),
                ),
                h(
                    "span",
                    _badge(verb, masked=masked),
                    _noise(here),
                ),
                phases(here[0]),
                _range([s.calls / s.runs for s in here]),
                _range([s.numbers / s.calls for s in here]),
                _range([s.bytes / s.runs for s in here], size=True),
            ]
        )
    head = ["Reply", "Who sees it", "For", "Times", "Numbers each time", "In all"]
    n = len({s.site for s in own})
    run = "one training run" if arm.name else "once in the study"
    heading = h("h3", _name(arm), h("small", f"one hospital, {run}; {n} hospitals"), class_="block")
    stated = p(arm.reveals, class_="quiet") if arm.reveals else None
    spoken = f"{arm.title}: what one hospital sends, {run}"
    steps = table(head, body, numeric=(3, 4, 5), spoken=spoken, class_="wide")
    return h("div", heading, stated, steps, class_="whole")


def _noise(here: Sequence[Sent]) -> Markup | None:
    """Return the added noise, if any."""
    found = next((s.noise for s in here if s.noise), "")
    return h("small", f"with {words.spaced(found)} noise") if found else None


def _name(arm: Arm) -> Markup:
    """Return an arm's mark and title; the description of the patients has no mark."""
    return key(arm) if arm.name else h("span", arm.title, class_="arm")


def _range(values: Sequence[float], *, size: bool = False) -> str:
    """Return a value, or its range over hospitals."""
    form = words.size if size else words.count
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} – {high}"


def _sites(arms: Sequence[Arm], lines: Sequence[Sent]) -> Markup:
    """Return a table of hospitals: calls, numbers and bytes by arm, totals over the study."""
    body: list[list[str | Markup]] = []
    for site in sorted({s.site for s in lines}, key=natural):
        for arm in arms:
            here = [s for s in lines if (s.site, s.arm) == (site, arm.name)]
            if not here:
                continue
            visible = sum(s.calls for s in here if s.verb == "gather")
            body.append(
                [
                    site,
                    _name(arm),
                    words.count(here[0].runs),
                    words.count(sum(s.calls for s in here)),
                    words.count(visible),
                    words.count(sum(s.numbers for s in here)),
                    words.size(sum(s.bytes for s in here)),
                ]
            )
    head = ["Hospital", "Arm", "Training runs", "Replies", "of these visible", "Numbers", "Size"]
    caption = "Everything that left each hospital, over all settings and repeats of the study"
    return more("Hospital by hospital", table(head, body, numeric=range(2, 7), caption=caption))


def _bounds(run: Run) -> Markup | None:
    """Return the replies that the bounds would send."""
    parts: list[str] = []
    if run.lower:
        told = ", and what its judging sends stands above" if run.deployed else ""
        parts.append(f"“{run.lower.title}”: nothing leaves a hospital to train{told}.")
    if run.upper:
        parts.append(
            f"“{run.upper.title}”: every row would leave every hospital; it is computed here for "
            "comparison only, which a simulation can do and a real network cannot."
        )
    return p(" ".join(parts), class_="quiet") if parts else None


def budget(run: Run) -> Section | None:
    """Return the table of arms with noise; None without any."""
    asked: Mapping[str, Any] = run.mapping("privacy").get("dp") or {}
    costs = {a.name: _epsilons(run, a) for a in run.arms}
    arms = [a for a in run.arms if costs[a.name]]
    if not asked or not arms:
        return None
    delta = words.number(asked.get("delta"))
    claims = run.mapping("claims")
    rows: list[list[str | Markup]] = []
    for arm in arms:
        fits = costs[arm.name]
        claim = claims.get(arm.name)
        rows.append(
            [
                key(arm),
                _number(max(fits)),
                words.count(len(fits)),
                _number(sum(fits)),
                str(claim) if claim else words.MISSING,
            ]
        )
    every = sum(sum(f) for f in costs.values())
    n = sum(len(f) for f in costs.values())
    rows.append(["All", "", words.count(n), _number(every), ""])
    unit = "hospital" if asked.get("unit") == "site" else "patient"
    head = ["", "ε of one fit", "Fits", "ε of all fits", "The paper's claim"]
    body = h(
        "div",
        table(head, rows, numeric=(1, 2, 3), caption=f"Privacy spent; δ {delta:g} in each fit"),
        p(_reading(run, unit, every, n * delta), class_="quiet"),
        _without(run, [a for a in run.arms if not costs[a.name]]),
        _releases(run, arms),
    )
    return Section(
        "budget",
        "Privacy budget",
        "What did privacy cost?",
        f"ε bounds how much more likely anything that a fit told can be because one {unit}'s data "
        "were in it: at most e^ε times, but for a chance of δ. Smaller is more private; what is "
        "spent adds up over fits. Table 1 and the metrics are exact, and not covered.",
        body,
    )


def _epsilons(run: Run, arm: Arm) -> list[float]:
    """Return ε of each fit of an arm that added noise."""
    own = [row for key in ("arms", "final") for row in run.rows(key) if row.get("arm") == arm.name]
    return [words.number(row["epsilon"]) for row in own if row.get("epsilon") is not None]


def _reading(run: Run, unit: str, epsilon: float, delta: float) -> str:
    """Return the meaning of the totals."""
    told = (
        f"All fits with noise together are within ε {_number(epsilon)} and δ {delta:.2g} for "
        f"each {unit} (sums over fits: the simplest bound that always holds). "
    )
    if run.deployed and run.results.get("noise") != "seed":
        return told + (
            "Each node keeps an account of all studies on its data set, refuses what would "
            "overspend, and shows it by “fedcohort node budget”."
        )
    return told + (
        "The noise of a simulation is drawn from the study's seed, so that it can be repeated: "
        "anyone with the seed can remove it. Do not publish this run's models as private."
    )


def _without(run: Run, arms: list[Arm]) -> Markup | None:
    """Return arms without noise, listed beside the others."""
    fitted = {str(row.get("arm")) for row in run.rows("arms")}
    names = [a.title for a in arms if a.name in fitted]
    if not names:
        return None
    return p(
        f"Without noise, and not within this ε: {', '.join(names)}. Their results stand beside the "
        "others in this report; whoever sees them learns what no ε bounds.",
        class_="warning",
    )


def _releases(run: Run, arms: list[Arm]) -> Markup | None:
    """Return the noisy replies of each arm's accounting."""
    found = run.mapping("releases")
    rows: list[list[str | Markup]] = []
    for arm in arms:
        for r in found.get(arm.name) or ():
            share = words.number(r.get("sampling"))
            rows.append(
                [
                    key(arm),
                    words.spaced(str(r.get("step"))),
                    words.spaced(str(r.get("mechanism"))),
                    words.count(r.get("count")),
                    words.significant(r.get("noise")),
                    "all" if share >= 1 else words.percent(share),
                ]
            )
    if not rows:
        return None
    head = ["", "Answer", "Noise", "Times", "Noise over sensitivity", "Patients in each"]
    caption = "What the accounting is over: each noisy answer of one fit"
    return more("The noisy replies", table(head, rows, numeric=(3, 4, 5), caption=caption))


def _number(epsilon: float) -> str:
    return words.significant(epsilon, 3)
