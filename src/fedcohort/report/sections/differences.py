"""Differences between hospitals: by pairs, in their columns, and for the user of one model.

Files: results.json, `shift`, `feedback`, and `others` of the first repeat. The page has no script:
styles (`:has`, `:checked`) show the chosen number of other hospitals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.charts import Heat, cut_off, heats
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import number, significant

#: What is compared, as a panel and a line call it.
KINDS: Mapping[str, tuple[str, str]] = {
    "feature": ("Who comes: the columns", "column"),
    "label": ("The outcome", "outcome"),
    "conditional": ("The outcome in patients alike in a column", "outcome, given"),
    "gradient": ("Which way they pull a model (cosine)", ""),
}
#: Differences and hospitals on a page.
MOST_LINES, MOST_SITES = 12, 24

Found = Mapping[str, Any]


def shift(run: Run) -> Section | None:
    """Return heat maps, map and list, or None where the study did not ask."""
    found = run.mapping("shift")
    if not found:
        return None
    kinds: Sequence[Found] = found.get("kinds") or ()
    sites = [str(s) for s in found.get("sites") or ()]
    body: list[Markup | None] = [p(_said(found))]
    order = sorted(range(len(sites)), key=lambda i: natural(sites[i]))
    if kinds and 1 < len(sites) <= MOST_SITES:
        body.append(_heat(kinds, sites, order))
    if len(sites) > MOST_SITES:
        body.append(
            p(f"The matrices of {len(sites)} hospitals are in results.json.", class_="quiet")
        )
    placed = _map(kinds)
    body += [placed] if placed is not None else []
    body.append(_list(found.get("clear") or ()))
    body.append(_notes(found))
    return Section(
        "shift",
        "Differences",
        "How different are the hospitals?",
        "Each pair of hospitals, compared by tables of counts. 0 is alike, 1 is nothing in common "
        "(Jensen-Shannon divergence in bits, averaged over columns); a cosine of 1 means that two "
        "hospitals would change a model in the same way, −1 in the opposite way. The darker, the "
        "farther beyond what as many patients of one population give by chance.",
        h("div", body),
    )


def _said(found: Found) -> str:
    """Return in words the number of clear differences, and the sites that most concern."""
    if found.get("note"):
        return f"Nothing was compared: {found['note']}"
    clear, compared = int(found.get("n_clear") or 0), int(found.get("compared") or 0)
    head = f"{clear} of {compared} comparisons show a clear difference (adjusted p below 0.05)."
    count = {str(s): int(n) for s, n in (found.get("parts") or {}).items()}
    if not count:
        return head
    first = max(sorted(count, key=natural), key=lambda s: count[s])
    several = len(found.get("sites") or ()) > 2
    return head + (f" {first} has a part in {count[first]} of them." if several else "")


def _heat(kinds: Sequence[Found], sites: Sequence[str], order: Sequence[int]) -> Markup:
    """Return the matrices as one figure."""
    names = [sites[i] for i in order]
    panels: list[Heat] = []
    rows: list[dict[str, Any]] = []
    for one in kinds:
        kind = str(one["kind"])
        seen, chance = ([[number(one[k][i][j]) for j in order] for i in order]
                        for k in ("matrix", "expected"))  # fmt: skip
        turned = kind == "gradient"
        shades = [
            [(-1 if turned and v < 0 else 1) * _shade(c - v if turned else v - c, turned)
             for v, c in zip(*pair, strict=True)]
            for pair in zip(seen, chance, strict=True)
        ]  # fmt: skip
        panels.append(Heat(title=KINDS[kind][0], names=names, values=seen, shades=shades))
        rows += [
            {"kind": kind, "site": names[i], "other": names[j], "value": seen[i][j],
             "by_chance": chance[i][j]}
            for i in range(len(names)) for j in range(i)
        ]  # fmt: skip
    said = "; ".join(
        f"{r['kind']}, {r['other']} and {r['site']}: {words.fixed(r['value'], 2)}" for r in rows
    )
    return charts.figure(
        "shift-pairs", "All pairs of hospitals", _numbers(names), heats(panels), rows,
        f"Heat maps of the differences between hospitals. {said}.",
    )  # fmt: skip


def _numbers(names: Sequence[str]) -> str | None:
    """Return the numbers of sites whose names the figure cuts; None if it cuts none."""
    if not any(cut_off(names)):
        return None
    return "; ".join(f"{i} {name}" for i, name in enumerate(names, 1)) + "."


def _shade(beyond: float, turned: bool) -> float:
    """Return a cell's darkness; of a divergence its root, which spreads small values."""
    if beyond != beyond or beyond <= 0:
        return 0.0
    return min(beyond / 2, 1.0) if turned else min(beyond, 1.0) ** 0.5


def _map(kinds: Sequence[Found]) -> Markup | None:
    """Return the hospitals in the plane, by their columns."""
    one = next((k for k in kinds if k["kind"] == "feature"), None)
    if one is None or len(one["map"]["sites"]) < 3:
        return None
    found = one["map"]
    names = [str(s) for s in found["sites"]]
    order = sorted(range(len(names)), key=lambda i: natural(names[i]))
    several = len(names) > len(charts.LOOKS)
    dots = [
        charts.Dot(
            x=number(found["x"][i]), y=number(found["y"][i]),
            look=charts.LOOKS[0 if several else k], label="A hospital" if several else names[i],
        )
        for k, i in enumerate(order)
    ]  # fmt: skip
    rows = [{"site": names[i], "x": found["x"][i], "y": found["y"][i]} for i in order]
    share = words.percent(number(found["share"]))
    said = "; ".join(
        f"{r['site']}: {words.fixed(r['x'], 2)}, {words.fixed(r['y'], 2)}" for r in rows
    )
    return charts.figure(
        "shift-map", "Hospitals by who comes",
        f"Near each other are hospitals whose columns are alike, beyond chance. The plane holds "
        f"{share} of these differences; it may be turned or mirrored.",
        charts.dots(dots, "first axis", "second axis", area=110), rows,
        f"Places of hospitals. {said}.",
    )  # fmt: skip


def _list(rows: Sequence[Found]) -> Markup | None:
    """Return the largest clear differences."""
    if not rows:
        return None
    body = [
        [
            " ".join(filter(None, (KINDS[str(r["kind"])][1], str(r["variable"])))),
            f"{r['site']} – {r['other']}",
            words.fixed(r["value"], 3),
            words.fixed(r["expected"], 3),
            words.p_value(r["p_adjusted"]),
        ]
        for r in rows[:MOST_LINES]
    ]
    return table(
        ["What", "Hospitals", "Divergence", "By chance", "p, adjusted"], body, numeric=range(2, 5),
        caption="The largest clear differences",
    )  # fmt: skip


def _notes(found: Found) -> Markup | None:
    """Return the omitted sites and columns."""
    out: list[str] = []
    left: Mapping[str, str] = found.get("left_out") or {}
    away = {s for s, why in left.items() if why == words.AWAY}
    for names, why in ((left.keys() - away, "for too few patients"), (away, "as they were away")):
        if names:
            out.append(f"Not compared, {why}: {words.listed(sorted(names, key=natural))}.")
    closed = [str(s) for s in found.get("outcome_hidden") or ()]
    if closed:
        out.append(
            f"Not compared by outcome, whose counts are hidden there: {words.listed(closed)}."
        )
    return p(" ".join(out), class_="quiet") if out else None


def feedback(run: Run) -> Section | None:
    """Return the remarks by hospital, or None where the study did not ask."""
    found = run.mapping("feedback")
    if not found:
        return None
    remarks: Sequence[Mapping[str, Any]] = found.get("remarks") or ()
    sites = sorted(map(str, found.get("sites") or ()), key=natural)
    few = sorted(map(str, found.get("few") or ()), key=natural)
    if found.get("kept"):
        return _kept(found, sites, few)
    quiet = [s for s in sites if s not in few and all(r["site"] != s for r in remarks)]
    body: list[Markup] = []
    for site in sites:
        own = [r for r in remarks if r["site"] == site]
        if own:
            lines = (h("li", _line(r)) for r in own)
            body += [h("h3", site), h("ul", lines)]
    if quiet:
        body.append(p(f"Nothing is off at {words.listed(quiet)}."))
    body += _without(found, few)
    return Section(
        "feedback",
        "Feedback",
        "What should each hospital look at?",
        "Each hospital compared its own rows with the others, and lists columns that differ more "
        "than hospitals usually do; then columns that it does not record, and by how much they "
        "would reduce the loss of a linear model. A line is a question to people who know the "
        "data, not a verdict.",
        h("div", body),
    )


def _kept(found: Mapping[str, Any], sites: Sequence[str], few: Sequence[str]) -> Section:
    """Return the sites that got feedback, if each hospital keeps its own."""
    heard = [s for s in sites if s not in few]
    away = sorted(map(str, found.get("left_out") or ()), key=natural)
    body: list[Markup] = []
    if heard:
        body.append(p(f"Given to {words.listed(heard)}."))
    body += _without(found, few, away)
    return Section(
        "feedback",
        "Feedback",
        "What should each hospital look at?",
        "Each hospital compared its own rows with the others. Its findings are at its own node, in "
        "the folder state/feedback, for the people there; neither the coordinator nor this report "
        "has any of them.",
        h("div", body),
    )


def _without(
    found: Mapping[str, Any], few: Sequence[str], away: Sequence[str] = ()
) -> Iterator[Markup]:
    """Yield sites that were not compared, and why there is no feedback at all."""
    if few:
        yield p(f"Too few rows to be compared: {words.listed(few)}.")
    if away:
        yield p(f"Not compared, as they did not answer: {words.listed(away)}.")
    if found.get("note"):
        yield p(f"There is no feedback: {found['note']}")


def _line(remark: Mapping[str, Any]) -> str:
    """Return a remark without its site, named above it."""
    text, head = str(remark["line"]), f"{remark['site']}: "
    return text.removeprefix(head)


#: So many choices can be looked at; styles have as many.
MOST = 12
#: What a measure says.
MEANS = {
    "transfer loss": (
        "Transfer loss: what a hospital’s own model loses on the user’s patients beside its own; "
        "near 0 where both are of one population, and less is better. Far below 0 its model "
        "predicts its own patients badly, as wrong labels at random make it: it need not help."
    ),
    "Shapley value": (
        "Shapley value: by how much the user’s own loss falls for a hospital’s being there, "
        "averaged over who else is; below 0 it does harm. Values add up to the whole gain."
    ),
    "weight α": (
        "Weight α: what is left at the end of the 1 that each hospital began with; at 0 "
        "it has no part any more."
    ),
}


def others(run: Run) -> Section | None:
    """Return a ranking for each arm that is for one hospital; None without."""
    found = [fit for fit in clustered.fits(run, "others") if _rows(run, fit)]
    if not found:
        return None
    drawn = [(fit, _block(run, fit, f"pick-{i}")) for i, fit in enumerate(found)]
    return Section(
        "others", "Who helps", "Which hospitals help the one that the model is for?",
        "A personal model is for one hospital, the user. The others are ranked by how much they "
        "help it, by the user’s own training rows. Choose how many of the first to include: they "
        "are shaded. First repeat.",
        clustered.led(drawn),
    )  # fmt: skip


def _rows(run: Run, fit: Fit) -> list[Row]:
    """Return one fit's rows on the others, of the first repeat."""
    return [r for r in clustered.rows(run, "others", fit) if not int(r.get("repeat") or 0)]


def _block(run: Run, fit: Fit, name: str) -> Markup:
    """Return one fit's table under its choices."""
    found = _rows(run, fit)
    user = str(fit[0].settings.get("user", ""))
    intervals = any(r.get("low") is not None for r in found)
    measure = str(found[0]["measure"])
    body = [
        [str(r["site"]), _number(r["value"]), *([_interval(r)] if intervals else []),
         "yes" if r.get("chosen") else "no"]
        for r in found
    ]  # fmt: skip
    head = ["Hospital", measure.capitalize(), *(["Interval"] if intervals else []), "In the model"]
    taken = max(1, min(sum(bool(r.get("chosen")) for r in found), MOST))
    ks = range(1, min(len(found), MOST) + 1)
    return h(
        "div",
        p(h("b", clustered.title(run, fit)), f": for {user}. " if user else ". ",
          MEANS.get(measure)),
        h("div", "The first ", (_choice(name, k, k == taken) for k in ks), class_="choices"),
        (p(_says(found, k), class_=f"says k{k}-says") for k in ks),
        table(head, body, numeric=range(1, len(head) - 1), caption=f"Others, by {measure}"),
        class_="pick",
    )  # fmt: skip


def _choice(name: str, k: int, taken: bool) -> Markup:
    button = h("input", type="radio", name=name, class_=f"k{k}", checked=taken)
    return h("label", button, f" {k}")


def _says(found: Sequence[Row], k: int) -> str:
    """Return the first k sites, and the threshold that includes the same."""
    names = words.listed([str(r["site"]) for r in found[:k]])
    side = "up to" if found[0].get("least") else "from"
    edge = f"{found[0]['measure']} {side} {_number(found[k - 1]['value'])}"
    return f"{words.of(k, 'hospital')}, {edge}: {names}."


def _number(value: object) -> str:
    return significant(number(value), 3)


def _interval(row: Row) -> str:
    low, high = number(row.get("low")), number(row.get("high"))
    return f"{_number(low)} to {_number(high)}" if low == low else words.MISSING
