"""Settings of personalised baselines, and the plan made from them."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.arrays import Array
from fedcohort.models.predictor import loss_name, outputs_of
from fedcohort.protocol import SettingError, Task, changed, setting
from fedcohort.training.heterogeneity import KINDS
from fedcohort.training.networks.fit_settings import MONITORS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server
from fedcohort.training.networks.settings import (
    AlarmSettings,
    BatchSettings,
    PredictorSettings,
    VisitSettings,
    kept_rounds,
)
from fedcohort.training.networks.validated import VALIDATION
from fedcohort.training.personal import (
    PARTED,
    WAYS,
    Way,
    check_number,
    last_layer,
    of_columns,
)
from fedcohort.training.personal.settings import USER, OwnSettings, WaySettings, check_kept
from fedcohort.training.settings import UserSettings


@dataclass(frozen=True, kw_only=True)
class PersonalSettings(
    AlarmSettings,
    PredictorSettings,
    BatchSettings,
    OwnSettings,
    method="personal",
    alone={"user": "", "way": "local", "own_features": (), "monitor": "none"},
):
    """Settings of one fit."""

    for_all = True

    user: str = changed(UserSettings, "user", doc=USER)
    way: str = setting("finetune", "Way of personalisation", choices=WAYS)
    rounds: int = changed(VisitSettings, "rounds", default=50)
    optimiser: str = changed(VisitSettings, "optimiser", default="sgd")
    monitor: str = changed(WaySettings, "monitor", doc=MONITORS, choices=(*KINDS, VALIDATION))
    baseline: bool = setting(
        True,
        "Of cox: fit a baseline hazard, for survival curves; all sites then see the user's model",
    )
    own_features: tuple[str, ...] = setting(
        (),
        "fedper and fedrep of a linear predictor: covariates whose coefficients are each site's "
        "own, beside the intercept. Of a network the last layer is each site's own",
        "columns",
    )
    keep_rounds: tuple[int, ...] = setting(
        (), "Also return the user's model after each of these rounds", "rounds",
        within="[1, inf)",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_way(self.way)
        check_kept(self)
        if self.own_features and (self.hidden or self.way not in PARTED):
            raise SettingError(
                "setting 'own_features' of method 'personal' is for way 'fedper' or 'fedrep' of a "
                "linear predictor; leave it out, or set hidden to ()."
            )

    def check_sites(self, sites: int) -> None:
        """Refuse two sites, if the user's model and a sum would tell the other's."""
        if not self.every:
            check_number(self.way, sites)

    def plan(self, task: Task, model: str) -> Plan:
        """Return the plan of each site."""
        return Plan(
            network=self.network_of(model, task),
            loss=loss_name(model, outputs_of(model, task)),
            epochs=self.internal_epochs,
            batch_size=self.batch_size,
            optimiser=self.optimiser,
            l2=self.l2,
        )

    def way_of(self, features: tuple[str, ...], plan: Plan) -> Way:
        """Return the way as sent to sites.

        Raises
        ------
        SettingError : a name in `own_features` is not a covariate; the error lists the covariates.
        """
        own: tuple[tuple[int, int], ...] = ()
        if self.way in PARTED:
            if unknown := [name for name in self.own_features if features and name not in features]:
                raise SettingError(
                    f"setting 'own_features' of method 'personal' has {unknown[0]!r}, which is no "
                    f"covariate; there are {', '.join(map(repr, features))}."
                )
            columns = [features.index(name) for name in self.own_features if name in features]
            linear = not self.hidden
            own = of_columns(plan.network, columns) if linear else last_layer(plan.network)
        return self.way_by(self.way, own)

    def schedule(self, model: str) -> Schedule:
        """Number of rounds and learning rate."""
        return Schedule(
            rounds=self.rounds,
            learning_rate=self.rate_of(model),
            lr_rule="constant",
            keep=kept_rounds(self.keep_rounds, self.rounds),
        )


def server(theta: Array) -> Server:
    """Return FedAvg's state at θ (P,)."""
    return Server.at(theta, rate=1.0, beta1=0.0, beta2=0.0, tau=1.0)
