"""Energy and carbon of a run, by a simple model with every number stated.

Lannelongue, Grealey and Inouye, "Green Algorithms: quantifying the carbon footprint of
computation", Advanced Science 8(12), 2021, with the defaults of their calculator:

    energy = t (P_core + g P_memory) PUE + bytes · k      carbon = energy · intensity        (1)

with t the computing seconds of one core. k is the network's electricity intensity for 2015 (Aslan
et al., J. Industrial Ecology 22(4), 2018); it halves about every two years, so it is an upper
estimate. Units: kWh, and grams of CO₂ equivalent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedcohort.report import words
from fedcohort.report.run import Run

#: Watts of one busy core of no particular processor.
CORE_W = 12.0
#: Watts of one GB of memory, and how many a process is taken to hold.
MEMORY_W, MEMORY_GB = 0.3725, 2.0
#: Power usage effectiveness: power of a data centre over that of its computers.
PUE = 1.67
#: kWh for each GB between hospitals.
NETWORK_KWH = 0.06
#: Grams of CO₂ equivalent for each kWh: the world's mean.
INTENSITY = 475.0
#: Grams for each kilometre of a mean European passenger car.
CAR_G = 175.0


@dataclass(frozen=True)
class Footprint:
    """Cost of some runs: computing ``seconds`` of one core, ``traffic`` in bytes."""

    seconds: float
    traffic: float

    @property
    def computing(self) -> float:
        """Energy of computing in kWh, the first term of eq. (1)."""
        return self.seconds * (CORE_W + MEMORY_GB * MEMORY_W) * PUE / 3.6e6

    @property
    def sending(self) -> float:
        """Energy of the network in kWh, the second term of eq. (1)."""
        return self.traffic * NETWORK_KWH / 1e9

    @property
    def energy(self) -> float:
        """Energy in kWh, eq. (1)."""
        return self.computing + self.sending

    @property
    def carbon(self) -> float:
        """Grams of CO₂ equivalent, eq. (1)."""
        return self.energy * INTENSITY

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(self.seconds + other.seconds, self.traffic + other.traffic)


def by_arm(run: Run) -> Mapping[str, Footprint]:
    """Return the whole study's cost of each arm: all scenarios, repeats, sites and final fits.

    The upper bound is listed under every scenario but computed, and counted, once per repeat.
    """
    out: dict[str, Footprint] = {}
    counted: set[tuple[str, int]] = set()
    upper = None if run.upper is None else run.upper.name
    finals = [{**row, "repeat": -1} for row in run.rows("final")]
    for row in (*run.rows("arms"), *finals):
        arm, repeat = str(row["arm"]), int(row.get("repeat") or 0)
        if row.get("site") is not None or (arm == upper and (arm, repeat) in counted):
            continue
        counted.add((arm, repeat))
        seconds, up, down = (
            x if (x := words.number(row.get(k))) == x else 0.0
            for k in ("seconds", "bytes_up", "bytes_down")
        )
        out[arm] = out.get(arm, Footprint(0.0, 0.0)) + Footprint(seconds, up + down)
    return out


def by_site(run: Run) -> Mapping[str, Mapping[str, Footprint]]:
    """Return each hospital's own cost by arm and site, over the whole study.

    For arms that train together over natural hospitals: measured processor seconds of the
    hospital's
    steps, bytes that it sent, and an equal share of the bytes sent to all. The coordinator's
    computing
    belongs to no hospital.
    """
    names = {a.name for a in run.together}
    known = [r for r in run.rows("arms") if r["arm"] in names and r["scenario"] in run.natural]
    parts = [r for r in known if r.get("site") is not None and words.number(r.get("bytes_up")) > 0]
    sites = {str(r["site"]) for r in parts}
    out: dict[str, dict[str, Footprint]] = {}
    for row in parts:
        found = out.setdefault(str(row["arm"]), {})
        seconds, up = (words.number(row.get(k)) for k in ("seconds", "bytes_up"))
        one = Footprint(seconds if seconds == seconds else 0.0, up)
        found[str(row["site"])] = found.get(str(row["site"]), Footprint(0.0, 0.0)) + one
    for row in known:
        down = words.number(row.get("bytes_down"))
        if row.get("site") is None and down == down:
            for site, one in out.get(str(row["arm"]), {}).items():
                out[str(row["arm"])][site] = one + Footprint(0.0, down / len(sites))
    return out
