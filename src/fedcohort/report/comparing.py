"""The page of several runs: differences between the studies, then every metric side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcohort.report import charts, page, words
from fedcohort.report.comparison import Comparison, Line, difference
from fedcohort.report.markup import Markup, h, join, p, table
from fedcohort.report.sections.base import Section

#: Lines of a figure; more go into further figures.
_MOST = charts.MOST_ROWS


def render(comparison: Comparison) -> str:
    """Return the page's HTML."""
    sections = [_asked(comparison), *_files(comparison), *_metrics(comparison)]
    top = h(
        "header",
        h("h1", f"{words.listed(comparison.names)} compared"),
        p(_same(comparison), class_="question"),
    )
    return page.document(f"{' and '.join(comparison.names)} – fedcohort", top, sections)


def write(comparison: Comparison, out: Path) -> Path:
    """Write the page that compares some runs; return where it is."""
    out.write_bytes(render(comparison).encode("utf-8", "replace"))
    return out


def _same(comparison: Comparison) -> str:
    """Return whether differences are of the same patients."""
    others = list(zip(comparison.names, comparison.same_patients, strict=True))[1:]
    same = [name for name, yes in others if yes]
    if len(same) == len(others):
        return "All runs were judged on the same patients: differences are paired by repeat."
    if not same:
        return (
            "The runs were not judged on the same patients: their intervals stand beside each "
            "other, and no difference is given."
        )
    return f"Judged on the same patients as {comparison.names[0]}: {words.listed(same)}."


def _asked(comparison: Comparison) -> Section:
    """Return the keys of the study files that differ."""
    rows = [[k, *values] for k, values in comparison.differences()]
    body = (
        table(["Key", *comparison.names], rows, caption="What the study files say differently")
        if rows
        else p("Nothing: the study files are equal, and the software has one version.")
    )
    return Section(
        "asked", "What differs", "What was asked differently?",
        "Keys of the study files whose values are not the same in all runs.", body,
    )  # fmt: skip


def _files(comparison: Comparison) -> list[Section]:
    """Return the files equal to the first run's, and why others differ."""
    tables = [
        table(
            ["File", "State", "Why"], [[x.name, x.state, x.why] for x in lines],
            caption=f"Files of {name} beside those of {comparison.names[0]}",
        )
        for name, lines in comparison.files().items()
    ]  # fmt: skip
    if not tables:
        return []
    return [
        Section(
            "files", "Files", "Which files are equal?",
            "Of runs that judged the same patients. A model is its arrays and its preprocessing; "
            "a card, metrics and results describe how good it is.",
            h("div", tables),
        )
    ]  # fmt: skip


def _metrics(comparison: Comparison) -> list[Section]:
    """Return a section a metric."""
    lines = comparison.lines()
    names = dict.fromkeys(x.metric for x in lines)
    return [_metric(comparison, m, [x for x in lines if x.metric == m]) for m in names]


def _metric(comparison: Comparison, name: str, lines: Sequence[Line]) -> Section:
    """Return one metric: intervals of every run below each other, and the table."""
    metric = comparison.known(name)
    scenarios = dict.fromkeys(x.scenario for x in lines)
    figures = [
        _figure(comparison, name, c, mine[i : i + per], i // per)
        for c in scenarios
        for mine in ([x for x in lines if x.scenario == c],)
        for per in (max(1, _MOST // (len(comparison.runs) + 1)),)
        for i in range(0, len(mine), per)
    ]
    head = ["Arm", "Setting", *comparison.names]
    rows = [
        [x.title, comparison.scenario_title(x.scenario), *_cells(x, metric.digits)] for x in lines
    ]
    caption = f"{metric.axis}, 95 % intervals"
    if any(d is not None for x in lines for d in x.against):
        side = "better" if metric.sign else "more"
        caption += f"; below, the difference to {comparison.names[0]}: above 0 is {side}"
    return Section(
        f"metric-{name.replace('_', '-')}", metric.label, metric.label, metric.plain,
        h("div", figures, table(head, rows, caption=caption), map(p, comparison.notes(name))),
    )  # fmt: skip


def _figure(
    comparison: Comparison, metric: str, scenario: str, lines: Sequence[Line], part: int
) -> Markup:
    """Return the intervals of some arms in one setting, a line a run."""
    known = comparison.known(metric)
    rows: list[charts.Row] = []
    data: list[dict[str, object]] = []
    for line in lines:
        rows.append(charts.Row(name=line.title, kind="heading"))
        for i, (name, s) in enumerate(zip(comparison.names, line.summaries, strict=True)):
            if s is None:
                continue
            text = words.estimate(s.mean, s.low, s.high, known.digits)
            look = charts.LOOKS[i % len(charts.LOOKS)]
            rows.append(
                charts.Row(name=name, value=s.mean, low=s.low, high=s.high, look=look, text=text)
            )
            data.append(
                {"arm": line.arm, "run": name, "mean": s.mean, "low": s.low, "high": s.high}
            )
    label = known.axis
    where = comparison.scenario_title(scenario)
    return charts.figure(
        f"compare-{metric}-{scenario}-{part}",
        f"{label}: {where}",
        None,
        charts.interval_rows(rows, label, heads=("Run", "mean (95 % interval)")),
        data,
        f"{label} of every arm in {words.of(len(comparison.runs), 'run')}, {where}.",
    )


def _cells(line: Line, digits: int) -> list[Markup]:
    """Return each run's estimate and its difference to the first."""
    cells: list[Markup] = []
    for s, d in zip(line.summaries, line.against, strict=True):
        own = words.MISSING if s is None else words.estimate(s.mean, s.low, s.high, digits)
        cells.append(join(own, h("small", f" {difference(d, digits)}") if d is not None else None))
    return cells
