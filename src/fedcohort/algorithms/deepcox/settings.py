"""Settings of DeepCox."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.models.network import Mlp
from fedcohort.protocol import changed, setting
from fedcohort.training.networks.fit_settings import ALONE, FitSettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.settings import PLATEAU, AveragingSettings
from fedcohort.training.personal.settings import USER_IF_ANY
from fedcohort.training.settings import GridSettings, UserSettings


@dataclass(frozen=True, kw_only=True)
class DeepCoxSettings(
    GridSettings,
    FitSettings,
    method="deepcox",
    alone={**ALONE, "strategy": "exact", "time_grid": "exact", "optimiser_state": "fresh"},
):
    """Settings of `deepcox`."""

    for_all = True

    user: str = changed(UserSettings, "user", doc=USER_IF_ANY)
    internal_batches: int = setting(
        1, "Batches in one epoch; 1: all rows at once", within="[1, inf)"
    )
    learning_rate: float = changed(AveragingSettings, "learning_rate", default=0.01)
    lr_rule: str = changed(
        AveragingSettings,
        "lr_rule",
        default="d62",
        doc=f"d62: max(η/√(i+1), 0.001) when the loss rises; {PLATEAU}",
        choices=("d62", "constant", "plateau"),
    )

    @property
    def private_batches(self) -> int:
        """Mini-batches of a private pass."""
        return self.internal_batches

    def plan(self, n_features: int) -> Plan:
        """Return the plan that each site trains by."""
        net = Mlp(
            inputs=n_features,
            hidden=self.hidden,
            activation=self.activation,
            dropout=self.dropout,
            intercept=False,
        )
        return self.plan_of(net.spec, "cox", batches=self.internal_batches, l1=self.l1, l2=self.l2)
