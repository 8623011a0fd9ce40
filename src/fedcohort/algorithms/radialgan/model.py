"""Fitted model of `radialgan`: at a site its predictor, decoder and the mixture that it decodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from fedcohort.algorithms.radialgan.messages import Alone, Groups
from fedcohort.algorithms.radialgan.records import drawn, table_of
from fedcohort.algorithms.radialgan.settings import RadialPlan
from fedcohort.algorithms.radialgan.training import Player, loss_and_spec, model_of, virtual_rows
from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.predictor import Predictor, baseline_arrays, baseline_of
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import NotSupported, Row
from fedcohort.training.settings import ALL, kept_at_sites


@dataclass(frozen=True, kw_only=True, eq=False)
class RadialModel(Predictor):
    """The model of one site; with user "all" the coordinator's, which predicts nothing.

    Attributes
    ----------
    user : site of the model; `ALL`; or "" of a single site.
    plan : text of the `RadialPlan`.
    own : (P,), 1 at the places of a record that the site has.
    spec, radial : the networks, and their θ; "" and () without.
    binary : places of a code with two values, as of `RadialPlan.binary`.
    groups : mixture of the other sites' codes; None without.
    unit : of the times of records.
    told : at the coordinator, the last mean adversarial and cycle losses (2,), or of a private fit
        the noisy number of records (1,); () at a site.
    """

    user: str
    plan: str
    own: Array = field(default_factory=lambda: np.zeros(0))
    spec: str = ""
    radial: Array = field(default_factory=lambda: np.zeros(0))
    binary: Sequence[Sequence[float]] = ()
    groups: Groups | None = None
    unit: float = 1.0
    told: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(
        cls, features: tuple[str, ...], levels: tuple[str, ...], plan: RadialPlan, user: str, *,
        alone: Alone | None = None, theta: Array | None = None, spec: str = "",
        binary: Sequence[Sequence[float]] = (), groups: Groups | None = None,
        told: Array | None = None, unit: float = 1.0,
    ) -> Self:  # fmt: skip
        """Return the model of a finished predictor; without one, the coordinator's."""
        model = model_of(plan)
        more: dict[str, Any] = {"theta": np.zeros(0)}
        if told is not None:
            more["told"] = told
        if alone is not None:
            more = {"theta": alone.model, "own": alone.own}
            if model == "cox":
                more["baseline"] = Baseline(alone.times, alone.cumulative)
        return cls(
            features=features, model=model, levels=levels if model == "softmax" else (),
            network=loss_and_spec(plan)[1], user=user, plan=plan.text, spec=spec,
            radial=np.zeros(0) if theta is None else theta, binary=binary, groups=groups,
            unit=unit, **more,
        )  # fmt: skip

    @property
    def every(self) -> bool:
        """Whether each site keeps a model of its own, and this one predicts nothing."""
        return self.user == ALL

    def predict(self, x: Array) -> Array:
        """Return the probability of class 1, of each class, or the log risk of rows x (n, p).

        Missing entries, and columns that the site lacks, are 0, the mean of standard scales.

        Raises
        ------
        NotSupported : each site keeps a model of its own.
        """
        if self.every:
            raise NotSupported(kept_at_sites("radialgan"))
        own = self.own[: len(self.features)] > 0
        return super().predict(np.where(own & ~np.isnan(x), x, 0.0))

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n rows (n, p), decoded from codes of other sites; NaN in columns that the site
        lacks.

        Raises
        ------
        NotSupported : the model is not a site's, or was trained without virtual rows.
        """
        return self.sample_rows(n, rng)[0]

    def sample_outcome(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return n rows as `sample`, and their outcomes (n, k): a class number; or time, event."""
        x, r = self.sample_rows(n, rng)
        plan = RadialPlan.of(self.plan)
        table = table_of(r, plan, self.unit)
        if isinstance(table, SurvivalTable):
            return x, np.column_stack([table.time, table.event])
        return x, np.asarray(table.y)[:, None]

    def undrawn(self) -> tuple[str, ...]:
        """Return the columns that the site lacks."""
        pairs = zip(self.features, self.own.tolist(), strict=False)
        return tuple(name for name, has in pairs if not has)

    def unprotected(self) -> str:
        """Return that decoder and predictor of a site have no noise."""
        return (
            "The noise of this fit protects the patients of the other hospitals. The decoder that "
            "drew these rows was trained without noise on the hospital's own patients."
        )

    def sample_rows(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return n rows as `sample`, and the records (n, P) that they are part of."""
        if self.groups is None:
            raise NotSupported(
                kept_at_sites("radialgan")
                if self.every
                else "this model was trained without virtual rows (virtual: 0)"
            )
        plan = RadialPlan.of(self.plan)
        player = Player(self.spec, plan, self.radial, np.zeros((2, len(self.radial))), 0.0)
        r = virtual_rows(player, self.own, drawn(self.groups, n, rng, self.binary), rng)
        own = self.own[: len(self.features)] > 0
        return np.where(own, r[:, : len(self.features)], np.nan), r

    def summary(self) -> list[Row]:
        """Return one row per covariate that the site has; none if each site keeps its model."""
        if self.every:
            return []
        has = dict(zip(self.features, self.own.tolist(), strict=False))
        return [row for row in super().summary() if has.get(row["covariate"], 0)]

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, if any; at the coordinator, the last mean losses of the sites."""
        if not self.every:
            return self._intercept_rows()
        if len(self.told) == 1:
            return [{"name": "records", "value": float(self.told[0]), "note": "with noise"}]
        names = ("adversarial loss", "cycle loss")
        return [
            {"name": name, "value": value, "note": "mean over sites, last round"}
            for name, value in zip(names, self.told.tolist(), strict=True)
        ]

    def arrays(self) -> dict[str, Array]:
        """Return θ of predictor and networks, the columns, and the mixture."""
        arrays = {"theta": self.theta, "own": self.own, "radial": self.radial, "told": self.told}
        arrays["binary"] = np.array([list(b) for b in self.binary], float).reshape(-1, 3)
        arrays |= {} if self.groups is None else vars(self.groups)
        return arrays | baseline_arrays(self.baseline)

    def meta(self) -> dict[str, Any]:
        """Return names, and the networks' specs."""
        names = ("model", "network", "user", "plan", "spec", "unit")
        lists = {"features": list(self.features), "levels": list(self.levels)}
        return lists | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given = dict(meta)
        features, levels = tuple(given.pop("features")), tuple(given.pop("levels"))
        fields = Groups.__dataclass_fields__
        groups = Groups(*(arrays[f] for f in fields)) if "means" in arrays else None
        return cls(
            features=features, levels=levels, theta=arrays["theta"], own=arrays["own"],
            radial=arrays["radial"], told=arrays["told"], binary=arrays["binary"].tolist(),
            groups=groups, baseline=baseline_of(arrays), **given,
        )  # fmt: skip
