"""Figures of `run.py`'s results: accuracy and α by round, and parameters side by side.

    python benchmarks/weight_erosion/figures.py --out DIR --figures FOLDER

Writes an SVG for each data set, split and kind (the paper's figures 1 to 9 have the same kinds, of
one seed): means over seeds, with bands of one standard error.

- `accuracy`: Global, Local and Erosion by round, to convergence; the optima as level lines.
- `ways`: the same of the ways of `personal`.
- `alpha`: the weight of each other site, by either distance; p_d is one for a split, see `show.py`.
- `paper-…`: accuracy and weights in the paper's protocol (Titanic).
- `parameters`: coefficients of each user's models (Titanic).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from run import SHOWN, WAY_ROUNDS, WAYS
from show import TITANIC, choose, read, sites_of

from fedcohort.report.charts import Row, Series, Spec, interval_rows, lines_with_bands, render

LOOKS = {"Global": "upper", "Local": "lower"}


def banded(
    label: str, look: str, panel: str, rounds: Sequence[int], paths: Iterable[Sequence[float]]
) -> Series:
    """Return the mean of paths (seeds, rounds), and a band of one standard error."""
    every = np.array(list(paths), float)
    mean = every.mean(axis=0)
    error = every.std(axis=0, ddof=1) / np.sqrt(len(every)) if len(every) > 1 else 0.0 * mean
    points = list(zip(rounds, mean, mean - error, mean + error, strict=True))
    return Series(
        label=label, look=look, points=[tuple(map(float, p)) for p in points], panel=panel
    )


def level(label: str, panel: str, value: float, last: int) -> Series:
    """Return an optimum, which has no rounds."""
    return Series(
        label=label, look=LOOKS[label], points=[(1.0, value), (float(last), value)], panel=panel
    )


def accuracy(runs: pd.DataFrame, chosen: pd.DataFrame) -> Spec:
    """Return the chart of Erosion by round, a panel for each user."""
    series: list[Series] = []
    for user, part in chosen[chosen.choice == "own"].groupby("user"):
        series += levels(runs, str(user), SHOWN[-1])
        none = chosen[(chosen.user == user) & (chosen.arm == "mean of sites")]
        series.append(banded("mean of sites", "c3", str(user), SHOWN, none.accuracy))
        for look, kind in (("c0", "gradient"), ("c1", "noise")):
            own = part[part.kind == kind]
            series.append(banded(f"Erosion, {kind}", look, str(user), SHOWN, own.accuracy))
    return lines_with_bands(series, "round", "test accuracy", log=True)


def levels(runs: pd.DataFrame, user: str, last: int) -> list[Series]:
    """Return the optima of a user."""
    return [
        level(arm, user, float(runs[(runs.arm == arm) & (runs.user == user)]["last"].mean()), last)
        for arm in LOOKS
    ]


def ways(runs: pd.DataFrame, title: str) -> Spec:
    """Return the chart of the ways of `personal` by round, a panel for each user."""
    rounds = [r for r in SHOWN if r <= WAY_ROUNDS]
    looks = {"global": "upper", "local": "lower"}
    rest = [way for way in WAYS if way not in looks]
    looks |= {way: f"c{k}" for k, way in enumerate(rest)}
    series = [
        banded(way, looks[way], str(user), rounds, part.accuracy)
        for user, own in runs.groupby("user")
        for way in WAYS
        if len(part := own[(own.arm == way) & own.failed.isna()])
    ]
    return lines_with_bands(series, "round", title, log=True)


def alpha(chosen: pd.DataFrame, names: dict[tuple[str, str], list[str]]) -> Spec:
    """Return the chart of weights by round, a panel for each distance and user."""
    series: list[Series] = []
    for (user, kind), part in chosen[chosen.choice == "all"].groupby(["user", "kind"]):
        split = part.split.iloc[0]
        paths = np.array(part.alpha.tolist())
        for k, site in enumerate(names[split, user]):
            if site != user:
                panel = f"{user}, against {kind}" if kind == "noise" else f"{user}, {kind}"
                series.append(banded(site, f"c{k}", panel, SHOWN, paths[:, :, k]))
    return lines_with_bands(series, "round", "weight α", log=True, y_domain=(0.0, 1.02))


def paper_accuracy(runs: pd.DataFrame) -> Spec:
    """Return the chart of the paper's protocol, a panel for each user."""
    looks = {"Global, 0.07": "upper", "Global, 3": "c3", "Local, 3": "lower", "Erosion, 3": "c0"}
    series = [
        banded(arm, look, str(user), range(1, 31), own[own.arm == arm].accuracy)
        for user, own in runs.groupby("user")
        for arm, look in looks.items()
    ]
    return lines_with_bands(series, "round", "test accuracy", whole=True)


def paper_alpha(runs: pd.DataFrame) -> Spec:
    """Return the chart of weights in the paper's protocol, a panel for each user."""
    series = [
        banded(site, f"c{site[-1]}", str(user), range(1, 31), [row[site] for row in own.alpha])
        for user, own in runs[runs.arm == "Erosion, 3"].groupby("user")
        for site in own.alpha.iloc[0]
    ]
    return lines_with_bands(series, "round", "weight α", whole=True, y_domain=(0.0, 1.02))


def parameters(runs: pd.DataFrame, chosen: pd.DataFrame, users: Sequence[str]) -> Spec:
    """Return the chart of coefficients, a line for each, means over seeds."""
    rows: list[Row] = []
    for user in users:
        rows.append(Row(name=f"user {user}", kind="heading"))
        ends = {
            arm: np.mean(runs[(runs.user == user) & (runs.arm == arm)].theta.tolist(), axis=0)
            for arm in LOOKS
        }
        own = {
            kind: np.array(
                chosen[(chosen.user == user) & (chosen.arm == f"{kind}, own")].theta.tolist()
            )
            for kind in ("gradient", "noise")
        }
        for k, name in enumerate((*TITANIC, "intercept")):
            first = own["gradient"][:, k]
            error = first.std(ddof=1) / np.sqrt(len(first))
            mean = float(first.mean())
            others = (("upper", float(ends["Global"][k])), ("lower", float(ends["Local"][k])),
                      ("c1", float(own["noise"][:, k].mean())))  # fmt: skip
            rows.append(Row(name=name, value=mean, low=mean - error, high=mean + error, look="c0",
                            text=f"{mean:+.2f}", others=others))  # fmt: skip
    legend = (("upper", "Global"), ("lower", "Local"), ("c0", "Erosion, gradient"),
              ("c1", "Erosion, noise"))  # fmt: skip
    return interval_rows(rows, "coefficient, log odds", reference=0.0, legend=legend)


def write(path: Path, title: str, chart: Spec) -> None:
    """Write a chart as a file of its own."""
    drawing = render.draw(chart)
    path.write_text(render.standalone(drawing, title, title), "utf-8")
    print(path.name, path.stat().st_size)


def cohort(path: Path, name: str, folder: Path) -> None:
    """Write the figures of one data set."""
    runs = read(path)
    names = sites_of(runs)
    if name == "survival":
        for split, part in runs.groupby("split"):
            write(
                folder / f"{name}-{split}-ways.svg",
                f"C-index by round, {split}",
                ways(part, "C-index"),
            )
        return
    chosen = choose(runs)
    for split, part in runs.groupby("split"):
        own = chosen[chosen.split == split]
        at = f"{name}-{split}"
        write(folder / f"{at}-accuracy.svg", f"Accuracy by round, {at}", accuracy(part, own))
        write(folder / f"{at}-alpha.svg", f"Weights by round, {at}", alpha(own, names))
        if (part.arm == WAYS[-1]).any():
            write(
                folder / f"{at}-ways.svg",
                f"Personalised models by round, {at}",
                ways(part, "test accuracy"),
            )
        if (part.arm == "Erosion, 3").any():
            write(
                folder / f"{at}-paper-accuracy.svg",
                f"The paper's protocol, {at}",
                paper_accuracy(part),
            )
            write(
                folder / f"{at}-paper-alpha.svg",
                f"Weights in the paper's protocol, {at}",
                paper_alpha(part),
            )
        if name == "titanic":
            for k, users in enumerate((("agent0", "agent1"), ("agent2", "agent3"))):
                write(
                    folder / f"{at}-parameters-{k + 1}.svg",
                    f"Coefficients, {at}",
                    parameters(part, own, users),
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figures", type=Path, required=True)
    given = parser.parse_args()
    given.figures.mkdir(parents=True, exist_ok=True)
    for name in ("titanic", "heart", "mds", "survival"):
        if (given.out / f"{name}.jsonl").exists():
            cohort(given.out / f"{name}.jsonl", name, given.figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
