"""Fitted personalised model: a network or coefficients of one site, and their origin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.predictor import Predictor, baseline_arrays, baseline_of
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import NotSupported, Row
from fedcohort.training.networks.fits import StagedModel
from fedcohort.training.settings import ALL, kept_at_sites


@dataclass(frozen=True, kw_only=True, eq=False)
class PersonalModel(StagedModel, Predictor):
    """A model for one site.

    Attributes
    ----------
    user : the site that the model is for; `ALL` if each site keeps its own, which `of` the fit has
        in a simulation: this model then has the common parameters, and predicts nothing.
    way : way of personalisation.
    common : w (P,), the common model that it comes from; empty for `local`.
    rounds : of the fit; 0 in a model that a site keeps.
    loss : of the model on the user's rows, with its penalty; NaN if not told.
    alpha : of apfl, the share of the user's own model; NaN for other ways.
    counts : in cluster, sites of each model; empty without a split.
    parts : in fedper and fedrep, number of the user's own parameters; −1 for other ways.
    common_rounds : with a monitor, rounds before its alarm, or all without an alarm; else 0.
    kept : the models after earlier rounds. baselines : of cox, theirs.
    """

    user: str
    way: str
    common: Array
    rounds: int
    loss: float = math.nan
    alpha: float = math.nan
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    parts: int = -1
    common_rounds: int = 0
    kept: Mapping[int, Array] = field(default_factory=dict[int, Array])
    baselines: Mapping[int, Baseline] = field(default_factory=dict[int, Baseline])

    @property
    def every(self) -> bool:
        """Whether each site keeps a model of its own, and this one predicts nothing."""
        return self.user == ALL

    def predict(self, x: Array) -> Array:
        """Return the probability, value, count or log risk of each row of x (n, p): (n,).

        Raises
        ------
        NotSupported : each site keeps a model of its own.
        """
        if self.every:
            raise NotSupported(kept_at_sites("personal"))
        return super().predict(x)

    def summary(self) -> list[Row]:
        """Return one row per covariate, without standard errors; none for a network, or if each
        site keeps its own model.
        """
        return [] if self.every else super().summary()

    def _stage(self, rounds: int) -> Self:
        return replace(
            self, theta=self.kept[rounds], common=np.zeros(0), rounds=rounds, loss=math.nan,
            alpha=math.nan, counts=np.zeros(0, np.int64), kept={},
            baseline=self.baselines.get(rounds), baselines={},
        )  # fmt: skip

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, if any, α of apfl, and the user's loss, or their means."""
        rows = [] if self.every else self._intercept_rows()
        if not math.isnan(self.alpha):
            note = "1 is the user's rows alone, 0 the common model"
            name = "mean share of the own model" if self.every else "share of the own model"
            rows.append({"name": name, "value": self.alpha, "note": note})
        if 0 < self.common_rounds < self.rounds:
            note = "then sites were found to differ, and the own model began"
            rows.append({"name": "common rounds", "value": self.common_rounds, "note": note})
        if not math.isnan(self.loss):
            whose = "all sites, each by its own model" if self.every else self.user
            note = f"on the training rows of {whose}"
            rows.append({"name": "loss", "value": self.loss, "note": note})
        return rows

    def cautions(self) -> tuple[str, ...]:
        """Return a caution if the model is only the common one."""
        if self.way == "cluster" and self.rounds and np.count_nonzero(self.counts) < 2:
            return ("sites were not split: the model is the common one",)
        if 0 < self.common_rounds == self.rounds and self.way != "global":
            return ("sites were not found to differ: the model is the common one",)
        if not self.parts:
            return (
                "a Cox model has no intercept, so no part is the user's own: the model is the "
                "common one. Name covariates in own_features, or give hidden",
            )
        return ()

    def arrays(self) -> dict[str, Array]:
        """Return θ, w, and the kept models, by name."""
        own = {
            "theta": self.theta,
            "common": self.common,
            "told": np.array([self.loss, self.alpha]),
            "counts": np.asarray(self.counts, np.int64),
        }
        own |= baseline_arrays(self.baseline)
        for r, baseline in self.baselines.items():
            own |= baseline_arrays(baseline, f"round{r}.")
        return own | {f"round{r}": theta for r, theta in self.kept.items()}

    def meta(self) -> dict[str, Any]:
        """Return names, the network's spec, and the course of the fit."""
        names = ("model", "network", "user", "way", "rounds", "parts", "common_rounds")
        lists: dict[str, Any] = {
            "features": list(self.features), "levels": list(self.levels), "kept": sorted(self.kept),
        }  # fmt: skip
        return lists | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given = dict(meta)
        loss, alpha = arrays["told"].tolist()
        features = tuple(given.pop("features"))
        levels = tuple(given.pop("levels", ()))
        kept = {int(r): arrays[f"round{r}"] for r in given.pop("kept")}
        vectors = {name: arrays[name] for name in ("theta", "common", "counts")}
        found = {r: baseline_of(arrays, f"round{r}.") for r in kept}
        baselines = {r: one for r, one in found.items() if one is not None}
        return cls(
            features=features, levels=levels, loss=loss, alpha=alpha, kept=kept,
            baseline=baseline_of(arrays), baselines=baselines, **vectors, **given,
        )  # fmt: skip
