"""Fitted model for one user, with the ranking of the other sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Row
from fedcohort.training.coalitions import UserModel


def digits(value: float) -> float:
    """Return three significant digits."""
    return float(f"{value:.3g}") + 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class NdoyeModel(UserModel):
    """Eq. (2) of `program`.

    Attributes
    ----------
    sites : the m other sites that have a model, the best first.
    transfer, own : L_{S_0}(f_i) and L̂CV_{S_i}(f_i) (m,), in the unit of the loss.
    chosen : number of sites trained with.
    user_loss : the user's own cross-validated loss, for comparison.
    trained : whether a model was trained; otherwise it is the user's own.
    """

    sites: tuple[str, ...]
    transfer: Array
    own: Array
    chosen: int
    user_loss: float
    trained: bool

    @property
    def factors(self) -> Array:
        """L̂ (m,) of eq. (1), increasing."""
        return self.transfer - self.own

    @property
    def ranking(self) -> list[Row]:
        """One row per site, the best first: its losses, L̂, and whether it is chosen."""
        columns = zip(
            self.sites, self.transfer.tolist(), self.own.tolist(), self.factors.tolist(),
            strict=True,
        )  # fmt: skip
        return [
            {
                "rank": i + 1,
                "site": site,
                "loss_on_user": there,
                "own_loss": own,
                "transfer_loss": factor,
                "chosen": i < self.chosen,
            }
            for i, (site, there, own, factor) in enumerate(columns)
        ]

    @property
    def choices(self) -> list[Row]:
        """One row per k: its sites, and the threshold that gives the same sites."""
        return [
            {"k": k, "threshold": float(self.factors[k - 1]), "sites": ", ".join(self.sites[:k])}
            for k in range(1, len(self.sites) + 1)
        ]

    def others(self) -> list[Row]:
        """Return eq. (1) of `program` for each site, the best first."""
        return [
            {
                "site": row["site"], "measure": "transfer loss", "value": row["transfer_loss"],
                "least": True, "chosen": bool(row["chosen"]) and self.trained,
            }
            for row in self.ranking
        ]  # fmt: skip

    def place_of(self, site: str) -> Row:
        """Return a site's rank, L̂ of eq. (1), and the user's loss without it and with its model.

        Without it is the user's own cross-validated loss, with it L_{S_0}(f_i). A site knows f_i,
        so a precise loss would tell of the user's rows: losses have three significant digits.
        """
        place: Row = {
            "measure": "transfer loss", "least": True, "rank": None, "of": len(self.sites),
            "value": None, "loss_without": None, "loss_with": None, "chosen": False,
            "n_chosen": self.chosen, "user": site == self.user, "reason": "",
        }  # fmt: skip
        if place["user"]:
            return place | {"loss_without": digits(self.user_loss), "chosen": True}
        if site not in self.sites:
            return place | {"reason": self.left_out.get(site, "it did not answer")}
        i = self.sites.index(site)
        losses = digits(self.user_loss), digits(float(self.transfer[i]))
        return place | {
            "rank": i + 1, "value": digits(float(self.factors[i])), "loss_without": losses[0],
            "loss_with": losses[1], "chosen": i < self.chosen,
        }  # fmt: skip

    def cautions(self) -> tuple[str, ...]:
        """Return the sites that were left out, and whether the model is the user's alone."""
        alone = f"no other site is trained with: the model is that of {self.user!r} alone"
        notes = (alone,) if self.sites and not (self.chosen and self.trained) else ()
        return (*super().cautions(), *notes)

    def arrays(self) -> dict[str, Array]:
        """Return the coefficients, and the losses."""
        return {**super().arrays(), "transfer": self.transfer, "own": self.own}

    def meta(self) -> dict[str, Any]:
        """Return names, and the chosen sites."""
        names = ("chosen", "user_loss", "trained")
        own = {name: getattr(self, name) for name in names}
        return {**super().meta(), "sites": list(self.sites), **own}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        return cls(
            **cls.restored(arrays, meta),
            sites=tuple(meta["sites"]),
            transfer=np.asarray(arrays["transfer"]),
            own=np.asarray(arrays["own"]),
            chosen=int(meta["chosen"]),
            user_loss=float(meta["user_loss"]),
            trained=bool(meta["trained"]),
        )
