"""Fitted influence: a model for one user, with the values of the other sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.algorithms.influence.shapley import Values
from fedcohort.arrays import Array
from fedcohort.protocol import Row
from fedcohort.training.coalitions import UserModel

#: Least redundancy, both ways, of two sites that can replace each other.
STANDS_IN = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class InfluenceModel(UserModel):
    """A model trained by values, with these values.

    Attributes
    ----------
    players : the m other sites that have a value.
    copies : site → other sites with the same rows.
    found : values, and their dependence on other sites.
    leave_one_out : gain in the user's loss from each, with all others present (m,).
    weights : weight of a row of each site, relative to one of the user (m,).
    loss_alone, loss_together : the user's private loss with no other site and with all.
    loss : the model's own private loss.
    level : coverage of the intervals.
    use : see the settings.
    """

    players: tuple[str, ...]
    copies: Mapping[str, tuple[str, ...]]
    found: Values
    leave_one_out: Array
    weights: Array
    loss_alone: float
    loss_together: float
    loss: float
    level: float
    use: str

    @property
    def contributions(self) -> list[Row]:
        """One row per site, by falling value.

        `value` is φ, in the unit of the loss; `low` and `high` its interval if orders were drawn
        (None if exact); `leave_one_out` the other measure; `weight` the weight of its rows in the
        model. Sites with the same rows, `copy_of`, share one value; values of all sites add up to
        `loss_alone` − `loss_together`.
        """
        rows: list[Row] = []
        drawn = self.found.orders > 0
        for i, first in enumerate(self.players):
            group = (first, *self.copies.get(first, ()))
            value, low, high = (
                float(v[i]) / len(group)
                for v in (self.found.value, self.found.low, self.found.high)
            )
            rows += [
                {
                    "site": site,
                    "value": value,
                    "low": low if drawn else None,
                    "high": high if drawn else None,
                    "leave_one_out": float(self.leave_one_out[i]) if len(group) == 1 else 0.0,
                    "weight": float(self.weights[i]) if site == first else 0.0,
                    "copy_of": "" if site == first else first,
                }
                for site in group
            ]
        return sorted(rows, key=lambda row: (-row["value"], row["copy_of"] != "", row["site"]))

    def others(self) -> list[Row]:
        """Return the values of all sites, the largest first."""
        return [
            {
                "site": row["site"], "measure": "Shapley value", "value": row["value"],
                "low": row["low"], "high": row["high"], "chosen": row["weight"] > 0,
            }
            for row in self.contributions
        ]  # fmt: skip

    @property
    def redundancy(self) -> list[Row]:
        """One row per ordered pair of sites: the value of the first without and with the other.

        `redundancy` is r of eq. (3) of `shapley`; None if the value without the other is not above
        0.
        """
        rows: list[Row] = []
        for i, site in enumerate(self.players):
            for j, other in enumerate(self.players):
                with_, without = float(self.found.after[i, j]), float(self.found.before[i, j])
                if i != j and not np.isnan([with_, without]).any():
                    rows.append(_pair(site, other, without, with_))
            group = (site, *self.copies.get(site, ()))
            value = float(self.found.value[i])
            rows += [_pair(a, b, value, 0.0) for a in group for b in group if a != b]
        return rows

    @property
    def stand_ins(self) -> list[tuple[str, str]]:
        """Pairs of sites of which each has almost no value if the other is present."""
        found = {(r["site"], r["with"]): r["redundancy"] for r in self.redundancy}
        high = {pair for pair, r in found.items() if r is not None and r >= STANDS_IN}
        return sorted((a, b) for a, b in high if a < b and (b, a) in high)

    def cautions(self) -> tuple[str, ...]:
        """Return sites left out, sites with the same rows, and whether no other site helps."""
        notes = [
            f"{', '.join(map(repr, others))} and {first!r} hold the same rows: they are trained "
            f"with once, and share one value"
            for first, others in self.copies.items()
        ]
        if self.players and not self.weights.any():
            notes.append(
                f"no other site has a value above 0: the model is that of {self.user!r} alone"
            )
        return (*super().cautions(), *notes)

    def arrays(self) -> dict[str, Array]:
        """Return the coefficients, and the values of sites."""
        values = {name: getattr(self.found, name) for name in Values._fields[:-1]}
        own = {"leave_one_out": self.leave_one_out, "weights": self.weights}
        return {**super().arrays(), **values, **own}

    def meta(self) -> dict[str, Any]:
        """Return names, losses, and the way in which values were computed."""
        names = ("loss_alone", "loss_together", "loss", "level", "use")
        return {
            **super().meta(),
            "players": list(self.players),
            "copies": {site: list(others) for site, others in self.copies.items()},
            "orders": self.found.orders,
            **{name: getattr(self, name) for name in names},
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        values = (np.asarray(arrays[name]) for name in Values._fields[:-1])
        return cls(
            **cls.restored(arrays, meta),
            players=tuple(meta["players"]),
            copies={site: tuple(others) for site, others in meta["copies"].items()},
            found=Values(*values, orders=int(meta["orders"])),
            leave_one_out=np.asarray(arrays["leave_one_out"]),
            weights=np.asarray(arrays["weights"]),
            loss_alone=float(meta["loss_alone"]),
            loss_together=float(meta["loss_together"]),
            loss=float(meta["loss"]),
            level=float(meta["level"]),
            use=str(meta["use"]),
        )


def _pair(site: str, other: str, without: float, with_: float) -> Row:
    ratio = 1 - with_ / without if without > 0 else None
    return {
        "site": site, "with": other, "value_without": without, "value_with": with_,
        "redundancy": ratio,
    }  # fmt: skip
