"""Settings of Weight Erosion, and the plan made from them."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.algorithms.weight_erosion.erosion import AGAINST, Erosion, check_number
from fedcohort.algorithms.weight_erosion.gradient import VISITS
from fedcohort.models.predictor import loss_name, outputs_of
from fedcohort.protocol import Task, changed, setting
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.settings import (
    BatchSettings,
    PredictorSettings,
    VisitSettings,
)
from fedcohort.training.settings import UserSettings


@dataclass(frozen=True, kw_only=True)
class ErosionSettings(PredictorSettings, UserSettings, method="weight_erosion", alone={"user": ""}):
    """Settings of one fit."""

    rounds: int = changed(VisitSettings, "rounds", default=30, doc="Steps of gradient descent")
    visit: str = setting(
        "batch",
        "Work of a site in a round: gradient of a batch, of all rows (full), or the model change "
        "of internal_epochs passes (local)",
        choices=VISITS,
    )
    batch_size: int = changed(BatchSettings, "batch_size", default=128)
    internal_epochs: int = changed(
        VisitSettings, "internal_epochs", default=1, doc="Epochs in a local visit"
    )
    p_d: float = setting(
        0.01, "p_d: weight that a site loses per unit of relative distance", within="[0, inf]"
    )
    p_s: float = setting(
        0.2, "p_s: additional weight loss for each use of the site's rows", within="[0, inf]"
    )
    against: str = setting(
        "gradient",
        "Unit of distances: length of the user's gradient (the paper's), or expected squared "
        "distance by chance (noise)",
        choices=AGAINST,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(
            (
                "against",
                self.against == "gradient" or self.visit != "local",
                "'gradient' where 'visit' is 'local', which has no variance of a gradient",
            ),
        )

    def check_sites(self, sites: int) -> None:
        """Refuse two sites."""
        check_number(sites)

    @property
    def erosion(self) -> Erosion:
        """Decrease of weights."""
        return Erosion(distance=self.p_d, size=self.p_s, against=self.against)

    def plan(self, task: Task, model: str) -> Plan:
        """Return the plan of each site."""
        return Plan(
            network=self.network_of(model, task),
            loss=loss_name(model, outputs_of(model, task)),
            epochs=self.internal_epochs if self.visit == "local" else 1,
            batch_size=0 if self.visit == "full" else self.batch_size,
            optimiser="sgd",
            l2=self.l2,
        )
