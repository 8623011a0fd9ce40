"""Clusters: how many there are, how large, at which hospitals, and whether pooled data give them.

Rows are those of results.json: `clusters` and `cluster_sites`, where what may not be shown is None
already; nothing is worked out again from sums.
"""

from __future__ import annotations

from fedcohort.report import charts, cluster_verdict, words
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, more
from fedcohort.report.sections.clustered import Fit
from fedcohort.report.words import number

#: A table has so many hospitals.
MOST_SITES = 40


def section(run: Run) -> Section | None:
    """Return sizes and agreement, where the run has clusters."""
    same = _agreement(run)
    fits = clustered.fits(run, "clusters")
    if not (same or fits):
        return None
    sizes = [_sizes(run, fit) for fit in fits]
    others = more("The groups of the other arms and settings", *sizes[1:]) if sizes[1:] else None
    return Section(
        "clusters", "Clusters", "Which groups of patients were found?",
        "A cluster is a number that the method gives to patients who are alike in their features; "
        "clusters of different arms share numbers by chance only. Sizes are of the training "
        "patients of the first repeat. The adjusted Rand index compares groups, whatever their "
        "numbers: of all pairs of blind patients, how often two clusterings say the same of "
        "whether they belong together, corrected for chance. By Steinley (2004), 0.90 and more "
        "is excellent, 0.80 good, 0.65 moderate, less is poor.",
        h("div", p(_verdict(run)), same, sizes[:1], others),
    )  # fmt: skip


def _verdict(run: Run) -> str:
    """Return in plain words what was found, and how far it is apart."""
    arm = cluster_verdict.leading(run)
    if arm is None:
        return "No arm gave groups."
    return f"{cluster_verdict.answer(run, arm)} {cluster_verdict.structure(run, arm)}".strip()


def _agreement(run: Run) -> Markup | None:
    """Return each arm's adjusted Rand index against pooled data, a figure a setting."""
    drawn: list[Markup] = []
    for c, title in run.scenarios.items():
        found = [(a, s) for a in run.arms if (s := run.summary(a.name, c, "agreement"))]
        rows: list[charts.Row] = []
        data: list[dict[str, object]] = []
        said: list[str] = []
        for a, s in found:
            each = list(run.values(a.name, c, "agreement").values())
            text = words.estimate(s.mean, s.low, s.high, 2)
            ends = (min(each), max(each)) if max(each) > min(each) else None
            rows.append(
                charts.Row(
                    name=a.title,
                    value=s.mean,
                    low=s.low,
                    high=s.high,
                    look=a.look,
                    text=text,
                    span=ends,
                )
            )
            numbers = {"mean": s.mean, "low": s.low, "high": s.high}
            numbers |= {"lowest": min(each), "highest": max(each), "n": len(each)}
            data.append({"scenario": c, "arm": a.name, **numbers})
            said.append(f"{a.title}: {text}, {cluster_verdict.alike(s.mean)} groups")
        if not rows:
            continue
        drawn.append(
            charts.figure(
                f"clusters-agreement-{c}",
                f"Are they the groups of pooled data? {title}" if len(run.scenarios) > 1
                else "Are they the groups of pooled data?",
                "Adjusted Rand index against all data in one place; bars are 95 % intervals over "
                "patients"
                + "; mean over repeats, the pale line goes from the lowest to the highest"
                * (run.repeats > 1),
                charts.interval_rows(
                    rows, "Adjusted Rand index", reference=0.0, domain=_domain(rows)
                ),
                data,
                f"{'; '.join(said)}.",
            )
        )  # fmt: skip
    return h("div", drawn) if drawn else None


def _domain(rows: list[charts.Row]) -> tuple[float, float]:
    """Return a domain from chance, or below, to the same groups."""
    return min(-0.05, *(v - 0.02 for r in rows for v in r.ends)), 1.04


def _sizes(run: Run, fit: Fit) -> Markup | None:
    """Return how many patients each cluster has, in all and at each hospital."""
    found = {int(r["cluster"]): r for r in clustered.rows(run, "clusters", fit)}
    if not found:
        return None
    at = {(str(r["site"]), int(r["cluster"])): r.get("n")
          for r in clustered.rows(run, "cluster_sites", fit)}  # fmt: skip
    sites = sorted(dict.fromkeys(s for s, _ in at), key=natural)
    shown = sites[:MOST_SITES]
    numbers = sorted(found)
    body = [["All hospitals", *(_share(found[c].get("n"), found[c].get("share")) for c in numbers)]]
    body += [[s, *(clustered.counted(at.get((s, c))) for c in numbers)] for s in shown]
    notes = [clustered.hidden_note(run, [r.get("n") for r in found.values()] + list(at.values()))]
    if len(sites) > MOST_SITES:
        notes.append(f"The other {len(sites) - MOST_SITES} hospitals are in results.json.")
    head = ["", *map(clustered.name, numbers)]
    caption = f"{clustered.title(run, fit)}: training patients in each cluster, first repeat"
    said = " ".join(n for n in notes if n)
    return h(
        "div",
        table(head, body, numeric=range(1, len(head)), caption=caption),
        p(said, class_="quiet") if said else None,
    )


def _share(n: object, share: object) -> str:
    """Return a size with its share of all patients."""
    part = number(share)
    return clustered.counted(n) + (f" ({words.percent(part)})" if part == part else "")
