"""What a fit by Weight Erosion is: a network, or coefficients, and what each site weighed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.numerics.parameters import intercept_row
from fedcohort.protocol import Fitted, Row

#: What a linear predictor is of.
LINKS = {"logistic": "logit", "linear": "identity", "poisson": "log", "cox": "log"}
#: What exp(β) is.
RATIOS = {"logistic": "odds_ratio", "poisson": "rate_ratio", "cox": "hazard_ratio"}


@dataclass(frozen=True, kw_only=True, eq=False)
class ErosionModel(Fitted):
    """A model for one site.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    model : logistic, linear, poisson or cox.
    network, theta : spec, and θ (P,); of a linear predictor β and then the intercept.
    user : the site that the model is for.
    alpha : of each site that took part, its weight at the end; the user's is 1.
    rounds : of the fit. flat : those of them in which the user's gradient was 0.
    alone : site → rounds in which it was left out as the last with a weight.
    """

    features: tuple[str, ...]
    model: str
    network: str
    theta: Array
    user: str
    alpha: Mapping[str, float]
    rounds: int
    flat: int
    alone: Mapping[str, int]

    @property
    def linear(self) -> bool:
        """Whether there is no hidden layer."""
        return not json.loads(self.network)["hidden"]

    @property
    def coefficients(self) -> Array:
        """β (p,) of a linear predictor, per unit of the covariate; () of a network."""
        return self.theta[: len(self.features)] if self.linear else np.zeros(0)

    @property
    def intercept(self) -> float:
        """b₀ of a linear predictor; 0 of cox and of a network."""
        return float(self.theta[-1]) if self.linear and self.model != "cox" else 0.0

    def predict(self, x: Array) -> Array:
        """Return the probability, value, count or log risk of each row of x (n, p): (n,)."""
        net = network(self.network)
        net.load(self.theta)
        f = net.outputs(torch.from_numpy(np.array(x, np.float64, order="C")))
        if self.model == "logistic":
            return expit(f)
        return np.exp(f) if self.model == "poisson" else f

    def summary(self) -> list[Row]:
        """Return one row per covariate, without standard errors; none of a network."""
        ratio = RATIOS.get(self.model, "")
        pairs = zip(self.features, self.coefficients.tolist(), strict=self.linear)
        return [
            {"covariate": name, "coefficient": b}
            | ({ratio: math.exp(min(b, 709.0))} if ratio else {})
            for name, b in pairs
        ]

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, if there is one, and the weight of each site at the end."""
        rows: list[Row] = []
        if self.linear and self.model != "cox":
            rows.append(intercept_row(self.intercept, None, 0.95, LINKS[self.model]))
        for site, alpha in sorted(self.alpha.items()):
            note = "the site that the model is for" if site == self.user else "1 at the start"
            rows.append({"name": f"weight of {site}", "value": alpha, "note": note})
        return rows

    def cautions(self) -> tuple[str, ...]:
        """Say which sites were left out, and whether the user's gradient was 0."""
        said = [
            f"site {site!r} was left out of {n} of {self.rounds} rounds, in which it was the last "
            f"with a weight besides the user's"
            for site, n in sorted(self.alone.items())
        ]
        if self.flat:
            said.append(
                f"in {self.flat} of {self.rounds} rounds the user's gradient was 0, and nothing "
                f"was learnt"
            )
        return tuple(said)

    def arrays(self) -> dict[str, Array]:
        """Return θ, and α of each site in the order of their names."""
        return {"theta": self.theta, "alpha": np.array([a for _, a in sorted(self.alpha.items())])}

    def meta(self) -> dict[str, Any]:
        """Return names, the network's spec, and how the fit went."""
        names = ("model", "network", "user", "rounds", "flat")
        lists = {"features": list(self.features), "sites": sorted(self.alpha)}
        return lists | {"alone": dict(self.alone)} | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given = dict(meta)
        sites, features = given.pop("sites"), tuple(given.pop("features"))
        alpha = dict(zip(sites, arrays["alpha"].tolist(), strict=True))
        return cls(features=features, theta=arrays["theta"], alpha=alpha, **given)
