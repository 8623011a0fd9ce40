"""Write the tables of `docs/speed.md` and the pictures of its axes from the file of results.

    python benchmarks/speed/page.py

After `bench.py`, `axes.py` and `axes.py sizes` with ``--out benchmarks/speed/results.json``. A
table stands between `<!-- goals -->` and `<!-- end of goals -->`; each figure cites the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from axes import SIZES, draw  # noqa: E402

ROOT = HERE.parents[1]
RESULTS, PAGE, PICTURES = HERE / "results.json", ROOT / "docs/speed.md", ROOT / "docs/images/speed"
Found = Mapping[str, Mapping[str, Any]]

#: Rows of the table of goals: part, figure, what, goal, unit, whether at least.
GOALS = (
    ("w1", "plain/local", "W1, many small steps: plain loop / local runtime", 12.0, "×", True),
    ("w1", "local/flat", "W1: local runtime / the same arithmetic as a bare loop", 1.1, "×", False),
    ("w2", "local/flat", "W2, a wide network: local runtime / bare loop", 1.05, "×", False),
    ("w2", "threads/plain", "W2: two threads / plain loop", 0.6, "×", False),
    ("w3", "local/central", "W3, boosted trees: local runtime / central XGBoost", 3.0, "×", False),
    ("w4", "efron/newton", "W4, exact Cox, Efron: local runtime / pooled Newton", 1.5, "×", False),
    ("w4", "breslow/newton", "W4, Breslow", 1.5, "×", False),
    ("study", "study", "first study with its report (`make run`)", 15.0, " s", False),
    ("study", "report", "its report alone", 3.0, " s", False),
    ("study", "help", "`fedcohort --help`", 0.3, " s", False),
    ("study", "first_fit", 'first `fc.fit("cox")` of a process', 2.0, " s", False),
)


def cited(found: Found, group: str, name: str, digits: int = 2) -> str:
    """Return a figure with its citation."""
    return f"{found[group][name]:.{digits}f} <!-- benchmarks/speed/results.json {group} {name} -->"


def goals(found: Found) -> list[str]:
    """Return the table of goals that were measured; seconds of a busy machine are not judged."""
    lines = ["| what | measured | goal | |", "|---|---|---|---|"]
    for part, name, what, goal, unit, least in GOALS:
        group = f"bench_{part}"
        if group not in found:
            continue
        value = float(found[group][name])
        met = value >= goal if least else value <= goal
        verdict = "met" if met else "**missed**"
        if unit == " s" and float(found[group]["others"]) > 0.15:
            others = cited(found, group, "others", 1)
            verdict = f"not judged: other programs took {others} processors"
        sign = "≥" if least else "≤"
        lines.append(
            f"| {what} | {cited(found, group, name)}{unit} | {sign} {goal:g}{unit} | {verdict} |"
        )
    return lines


def sizes(found: Found) -> list[str]:
    """Return the table of whole studies."""
    names = {"cox": "Cox", "deepcox": "federated averaging", "exact": "exact gradient",
             "ensemble": "ensemble", "boosting": "boosting"}  # fmt: skip
    lines = [
        "| hospitals × rows × columns | arms, with bounds | processor s | wall s | at load | MB |",
        "|---|---|---|---|---|---|",
    ]
    for key, (sites, rows, columns, arms) in SIZES.items():
        group = f"size_{key}"
        if group in found:
            named = ("processor", "wall", "load", "megabytes")
            cells = [cited(found, group, n, 0) if n in found[group] else "–" for n in named]
            told = ", ".join(names[arm] for arm in arms)
            lines.append(f"| {sites} × {rows:,} × {columns} | {told} | {' | '.join(cells)} |")
    return lines


TABLES: Mapping[str, Callable[[Found], list[str]]] = {"goals": goals, "sizes": sizes}


def filled(page: str, found: Found) -> str:
    """Return the page with its tables.

    Raises
    ------
    SystemExit : a table has no place on the page.
    """
    for name, made in TABLES.items():
        first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if first not in page or last not in page:
            raise SystemExit(f"page: docs/speed.md has no place for {name}; add {first!r}.")
        before, rest = page.split(first)
        page = f"{before}{first}\n" + "\n".join(made(found)) + f"\n\n{last}{rest.split(last)[1]}"
    return page


def main() -> None:
    found = json.loads(RESULTS.read_text("utf-8"))
    PAGE.write_text(filled(PAGE.read_text("utf-8"), found), "utf-8")
    draw(found, PICTURES)


if __name__ == "__main__":
    main()
