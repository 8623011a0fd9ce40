"""Linkage: patients whom a run's published curves and numbers at risk single out.

Someone may know when a patient died or left (a register, a newspaper, a colleague). If a published
curve falls at that time by one to four deaths, or a number at risk by so few, the patient is found
in it, with their group, such as a predicted risk.

A curve reveals the number of deaths between two times. With N(t0) at risk and the ratio
r = S(t1)/S(t0), the d deaths of the interval are fewest if all are last and most if first:

    N(t1) (1/r − 1) ≤ d ≤ N(t0) (1 − r)                                                     (1)

where N is the nearest shown number at risk: N(t1) the next later one, N(t0) the last before. An
interval singles out patients if (1) gives 1 … m − 1 deaths for certain, or if two neighbouring
numbers at risk differ by 1 … m − 1. With the patients' own times, those who died or left in such an
interval are counted, at most as many as the interval may hold. For comparison, the same is done
with an unpublished curve of the same patients at exact times. Shares have exact (Clopper–Pearson)
intervals.

Not tried: several runs or groups of the same patients together; a time with a known group.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.stats import beta

from fedcohort.arrays import Array
from fedcohort.audit.findings import Findings
from fedcohort.protocol.errors import DataError

#: Level of the interval of a share.
LEVEL = 0.95
#: A number is whole to within this: the curves are printed with about 15 digits.
NEAR = 1e-6
_QUESTION = (
    "Can someone who knows when a patient died or left find them in a published curve or table?"
)


@dataclass(frozen=True)
class Published:
    """One curve with its numbers at risk, as a run published it.

    Attributes
    ----------
    name : of the group.
    times, survival : (k,) from time 0 on.
    at, at_risk : (s,) times and numbers.
    """

    name: str
    times: Array
    survival: Array
    at: Array
    at_risk: Array


@dataclass(frozen=True)
class Thin:
    """An interval (start, end] in which fewer than m patients died, or left, for sure; `most`."""

    start: float
    end: float
    most: int
    died: bool


def linkage(
    run: Path | Mapping[str, Any],
    time: Array | None = None,
    event: Array | None = None,
    *,
    arm: str = "",
    least: int = 5,
) -> Findings:
    """Look for patients who are singled out by what a run publishes.

    Parameters
    ----------
    run : the folder of a finished run, or what is in its results.json.
    time, event : (n,) of the patients whom the curves are of, if the rows may be seen.
    arm : whose curves; of all arms together by default.
    least : m; fewer patients are found.

    Raises
    ------
    DataError : the folder is no run's.
    """
    results = _read(run) if isinstance(run, Path) else run
    curves = list(published(results, arm))
    thin = [(c, t) for c in curves for t in thin_intervals(c, least)]
    lines: list[dict[str, Any]] = [
        {
            "what": "published curves and numbers at risk",
            "curves": len(curves),
            "intervals": sum(len(c.times) + len(c.at) - 2 for c in curves),
            "of few": len(thin),
        }
    ]
    settings: dict[str, Any] = {"least": least, "patients": None if time is None else len(time)}
    if time is not None and event is not None:
        time, event = np.asarray(time, float), np.asarray(event, bool)
        lines[0] |= _share(_singled_out((t for _, t in thin), time, event), len(time))
        exact = [exact_curve(time, event)] if len(time) else []
        found = [t for c in exact for t in thin_intervals(c, least)]
        lines.append(
            {
                "what": "the same patients at exact times (not published)",
                "curves": len(exact),
                "intervals": sum(len(c.times) + len(c.at) - 2 for c in exact),
                "of few": len(found),
            }
            | _share(_singled_out(found, time, event), len(time))
        )
    return Findings("linkage", arm, _QUESTION, lines, _verdict(curves, thin, least), bool(thin),
                 settings)  # fmt: skip


def published(results: Mapping[str, Any], arm: str = "") -> Iterator[Published]:
    """Yield every curve of a run's results that has numbers: of groups by risk, of clusters."""
    for row in cast("Iterable[Mapping[str, Any]]", results.get("risk_groups") or ()):
        if arm and row.get("arm") != arm:
            continue
        for group in cast("Iterable[Mapping[str, Any]]", row["groups"]):
            name = f"{row.get('arm')}, {row.get('scenario')}: {group['label']}"
            curve = np.array([[p[0], p[1]] for p in group["curve"]], float).reshape(-1, 2)
            at = np.array(group["at_risk"], float).reshape(-1, 2)
            yield Published(name, curve[:, 0], curve[:, 1], at[:, 0], at[:, 1])
    by_cluster: dict[str, list[Mapping[str, Any]]] = {}
    for row in cast("Iterable[Mapping[str, Any]]", results.get("cluster_curves") or ()):
        if not arm or row.get("arm") == arm:
            name = f"{row.get('arm')}, {row.get('scenario')}: cluster {row['cluster']}"
            by_cluster.setdefault(name, []).append(row)
    for name, rows in by_cluster.items():
        parts = [
            np.array([[r["time"], r[key]] for r in rows if r[key] is not None], float)
            for key in ("survival", "at_risk")
        ]
        curve, at = (part.reshape(-1, 2) for part in parts)
        yield Published(name, curve[:, 0], curve[:, 1], at[:, 0], at[:, 1])


def exact_curve(time: Array, event: Array) -> Published:
    """Return the Kaplan-Meier curve of patients (n,) at each of their times."""
    times = np.unique(time)
    at_risk = (time[:, None] >= times).sum(axis=0).astype(float)
    died = ((time[:, None] == times) & event[:, None]).sum(axis=0)
    survival = np.cumprod(1.0 - died / at_risk)
    after = np.r_[len(time), (time[:, None] > times).sum(axis=0)].astype(float)
    return Published("exact", np.r_[0.0, times], np.r_[1.0, survival], np.r_[0.0, times], after)


def thin_intervals(c: Published, least: int) -> list[Thin]:
    """Return the intervals of a curve that are of 1 to `least` − 1 patients, eq. (1)."""
    found: list[Thin] = []
    for i in range(1, len(c.times)):
        before, after = float(c.survival[i - 1]), float(c.survival[i])
        if before <= 0 or after >= before:
            continue
        low, high = deaths(c, i)
        if 1 <= high < least and low <= high:
            found.append(Thin(float(c.times[i - 1]), float(c.times[i]), high, died=True))
    for i in range(1, len(c.at)):
        left = round(float(c.at_risk[i - 1] - c.at_risk[i]))
        if 0 < left < least:
            found.append(Thin(float(c.at[i - 1]), float(c.at[i]), left, died=False))
    return found


def deaths(c: Published, i: int) -> tuple[int, int]:
    """Return the fewest and the most deaths between the times i − 1 and i of a curve, eq. (1)."""
    r = float(c.survival[i] / c.survival[i - 1])
    earlier = np.flatnonzero(c.at <= c.times[i - 1] + NEAR)
    later = np.flatnonzero(c.at >= c.times[i] - NEAR)
    most = float(c.at_risk[earlier[-1]]) if len(earlier) else math.inf
    least = float(c.at_risk[later[0]]) if len(later) else 0.0
    low = max(1, math.ceil(least * (1 / r - 1) - NEAR)) if r > 0 else 1
    high = most * (1 - r)
    return low, math.floor(high + NEAR) if math.isfinite(high) else 2**62


def _singled_out(thin: Iterable[Thin], time: Array, event: Array) -> int:
    """Return how many patients (n,) died or left in the intervals; each counts once."""
    found: set[int] = set()
    for one in thin:
        inside = (time > one.start) & (time <= one.end) & (event | (not one.died))
        found |= {int(i) for i in np.flatnonzero(inside)[: one.most]}
    return len(found)


def _share(found: int, n: int) -> dict[str, Any]:
    """Return how many of n patients are singled out, and an exact interval of the share."""
    tail = (1 - LEVEL) / 2
    low = float(beta.ppf(tail, found, n - found + 1)) if found else 0.0
    high = float(beta.ppf(1 - tail, found + 1, n - found)) if found < n else 1.0
    return {"singled out": found, "of": n, "share": found / max(n, 1), "low": low, "high": high}


def _verdict(curves: Sequence[Published], thin: Sequence[Any], least: int) -> str:
    if not curves:
        return "The run publishes no curve and no numbers at risk."
    if thin:
        return (
            f"{len(thin)} intervals of published curves are of fewer than {least} patients. "
            f"Whoever knows when one of them died or left finds the group that they are in."
        )
    return (
        f"No interval of {len(curves)} published curves can be shown to hold fewer than {least} "
        f"patients: a known time of death leads to {least} patients or more, or to nobody for sure."
    )


def _read(folder: Path) -> Mapping[str, Any]:
    """Return a run's results.

    Raises
    ------
    DataError : there are none.
    """
    path = folder / "results.json"
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: cannot read a run's results ({type(error).__name__}).") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: these are no results of a run.")
    return cast("Mapping[str, Any]", content)
