"""Settings of a model for one site, which methods share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedcohort.protocol import SettingError, Step, changed, setting
from fedcohort.training import heterogeneity
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.strategies import PLAIN, Visits
from fedcohort.training.personal import asks, check_number
from fedcohort.training.personal.clusters import LEAST
from fedcohort.training.personal.ways import PARTED, WAYS, Way, last_layer
from fedcohort.training.settings import UserSettings

#: Ways that go on from a common model.
SWITCHED = ("finetune", "fedper", "fedrep", "ditto", "apfl")
#: The ways of a method that has others, too: its plain fit is `global`, of one site `local`.
PERSONAL = ("none", *(way for way in WAYS if way not in ("local", "global")))


@dataclass(frozen=True, kw_only=True)
class WaySettings(UserSettings):
    """How a model is made one site's own, by the ways that need no clusters or shares."""

    own_epochs: int = setting(
        10,
        "finetune: the user's passes from the common model; fedrep: a visit's passes that train "
        "the own part",
        "epochs",
        within="[0, inf)",
    )
    pull: float = setting(
        0.1, "λ of ditto: pull of the user's model towards the common one", within="[0, inf)"
    )
    monitor: str = setting(
        "none",
        "Record the heterogeneity statistic R in each round, from gradients of the common model "
        "on parts of the sites' rows, or from its loss there. none turns it off. A personal model "
        "then begins once sites differ",
        choices=heterogeneity.KINDS,
    )

    def check_way(self, way: str) -> None:
        """Refuse settings that do not go with a way.

        Raises
        ------
        SettingError : names the first.
        """
        self.check(("own_epochs", self.own_epochs > 0 or way != "fedrep", "1 or more for fedrep"))
        if self.monitor != "none" and way not in ("none", "global"):
            check_switch(way, self.method)

    def way_by(self, name: str, own: tuple[tuple[int, int], ...]) -> Way:
        """Return what sites are told of a way, where `own` ranges of θ are a site's own."""
        return Way(
            name=name,
            user=self.user,
            epochs=self.own_epochs if name in ("finetune", "fedrep") else 0,
            own=own if name in PARTED else (),
            pull=self.pull if name == "ditto" else 0.0,
        )

    def own_bounds(self, ways: Iterable[Way], rounds: int) -> Mapping[str, Collection[Any]]:
        """Return what the steps of personalised training are asked with (`Method.bounds`).

        Without a user there is no way: a site takes one without a name for its own.

        Parameters
        ----------
        ways : that there may be; none where there are no columns yet.
        rounds : the most of a training that is watched.
        """
        named = tuple(way.text for way in ways if way.user and way.name in WAYS)
        return {"way": named, **heterogeneity.bounds(self.monitor, rounds)}


@dataclass(frozen=True, kw_only=True)
class OwnSettings(WaySettings):
    """The same, by all ways; symbols as in `training.personal`."""

    alpha: float = setting(
        0.5, "α of apfl: share of the user's own model, at first if it adapts", within="[0, 1]"
    )
    adapt_alpha: bool = setting(True, "Learn α of apfl")
    n_clusters: int = setting(
        2,
        "K of cluster: number of models that each site chooses from",
        "clusters",
        within="[1, inf)",
    )
    warm_rounds: int | None = setting(
        None,
        "Rounds of one common model before cluster splits it; null: half of them",
        "rounds",
        within="[1, inf)",
    )
    min_sites: int = setting(
        LEAST,
        "Smallest cluster of sites. With 2, each could infer the other's model",
        "sites",
        within="[2, inf)",
    )

    def way_by(self, name: str, own: tuple[tuple[int, int], ...]) -> Way:
        """Return what sites are told of a way, where `own` ranges of θ are a site's own."""
        way = super().way_by(name, own)
        return way if name != "apfl" else replace(way, alpha=self.alpha, adapt=self.adapt_alpha)

    def warm_of(self, rounds: int) -> int:
        """Return the rounds before cluster splits, of so many."""
        return max(1, rounds // 2) if self.warm_rounds is None else self.warm_rounds

    def asks_own(self, way: str, visits: Visits = PLAIN) -> tuple[Step[..., Any], ...]:
        """Return the steps that a training by a way can ask for, with its monitor's."""
        steps = asks(way, visits)
        if self.monitor == "none":
            return steps
        return tuple(dict.fromkeys((visits.sum, *heterogeneity.STEPS, *steps)))

    def own_bounds(self, ways: Iterable[Way], rounds: int) -> Mapping[str, Collection[Any]]:
        """Return what the steps of personalised training are asked with (`Method.bounds`)."""
        own = super().own_bounds(ways, rounds)
        sides = {"models": (self.n_clusters,), "side": range(self.n_clusters)}
        return {**own, **sides, "least": (self.min_sites,)}


@dataclass(frozen=True, kw_only=True)
class MaybeOwnSettings(OwnSettings):
    """The same, of a method whose model is for all sites unless `personal` says otherwise."""

    user: str = changed(UserSettings, "user", doc="Site of the personal model, if there is one")
    personal: str = setting(
        "none", "Way of personalisation; none: one model for all", choices=PERSONAL
    )

    def check_personal(self, *, strategy: str, aggregation: str, patience: int | None) -> None:
        """Refuse what goes with no personal model.

        Raises
        ------
        SettingError : names the first.
        """
        self.check_way(self.personal)
        if self.personal == "none":
            return
        odd = (
            (strategy not in RULES, f"strategy {strategy!r}: it averages no models; give 'fedavg'"),
            (aggregation != "mean", f"aggregation {aggregation!r}, which sees models; give 'mean'"),
            (patience is not None, "a patience, which looks at the common model; leave it out"),
        )
        for wrong, what in odd:
            if wrong:
                raise SettingError(
                    f"setting 'personal' of method {self.method!r} is {self.personal!r}, which "
                    f"does not go with {what}."
                )

    def check_sites(self, sites: int) -> None:
        """Refuse a personal model that so many sites are too few for."""
        super().check_sites(sites)
        if self.personal != "none":
            check_number(self.personal, sites)

    def personal_way(self, plan: Plan) -> Way:
        """Return what sites are told of the way, in which a network's last layer may be own."""
        parted = self.personal in PARTED
        return self.way_by(self.personal, last_layer(plan.network) if parted else ())

    def reveals_own(self, seen_by: str) -> str:
        """Say in plain words what leaves a site beside, or in place of, the mean of models.

        Parameters
        ----------
        seen_by : who sees the user's model.
        """
        if self.personal == "cluster":
            return (
                "once the sum of the losses of trial models; each round, sums of the models of the "
                "sites that take each, and how many these are; at the end which one the user takes"
            )
        part = "; a site's own last layer stays there" if self.personal in PARTED else ""
        return (
            "once how many sites have rows to learn from; at the end, the user's own model and its "
            f"loss, which {seen_by}{part}"
        )


def check_switch(way: str, method: str) -> None:
    """Refuse a way that does not go on from a common model.

    Raises
    ------
    SettingError : it is none of `SWITCHED`.
    """
    if way not in SWITCHED:
        raise SettingError(
            f"with a monitor, method {method!r} goes on in a personal way once sites differ, and "
            f"{way!r} does not go on from a common model; give {', '.join(SWITCHED)}, or no "
            f"monitor."
        )
