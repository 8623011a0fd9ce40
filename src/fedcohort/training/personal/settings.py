"""Settings of personalised models, shared by methods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedcohort.protocol import SettingError, Step, changed, setting
from fedcohort.training import heterogeneity
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.strategies import PLAIN, Visits
from fedcohort.training.personal import asks, check_number, own_counts
from fedcohort.training.personal.clusters import LEAST
from fedcohort.training.personal.ways import AFTER, PARTED, WAYS, Way, last_layer
from fedcohort.training.settings import ALL, UserSettings

#: Ways that can start from a common model.
SWITCHED = ("finetune", "fedper", "fedrep", "ditto", "apfl")
#: Ways of a method that also fits without one: that fit is `global`, or `local` with one site.
PERSONAL = ("none", *(way for way in WAYS if way not in ("local", "global")))


@dataclass(frozen=True, kw_only=True)
class WaySettings(UserSettings):
    """Settings of the ways of personalisation without clusters or apfl."""

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
        """Refuse settings that do not fit a way.

        Raises
        ------
        SettingError : names the first one.
        """
        self.check(("own_epochs", self.own_epochs > 0 or way != "fedrep", "1 or more for fedrep"))
        if self.monitor != "none" and way not in ("none", "global"):
            check_switch(way, self.method)

    def way_by(self, name: str, own: tuple[tuple[int, int], ...]) -> Way:
        """Return the way as sent to sites; `own` are the ranges of θ that stay at a site."""
        return Way(
            name=name,
            user=self.user,
            epochs=self.own_epochs if name in ("finetune", "fedrep") else 0,
            own=own if name in PARTED else (),
            pull=self.pull if name == "ditto" else 0.0,
        )

    def own_bounds(self, ways: Iterable[Way], rounds: int) -> Mapping[str, Collection[Any]]:
        """Return the allowed arguments of the personalised steps (`Method.bounds`).

        Without a user no way is allowed: a site would take a way without a name for its own. With
        a monitor and a model for each site, sites also keep the common model, as of ``global``.

        Parameters
        ----------
        ways : allowed ways; none before the columns are known.
        rounds : most rounds of a training with a monitor.
        """
        named = [way.text for way in ways if way.user and way.name in WAYS]
        if self.every and self.monitor != "none":
            named.append(Way(name="global", user=self.user).text)
        return {"way": named, **heterogeneity.bounds(self.monitor, rounds)}


@dataclass(frozen=True, kw_only=True)
class OwnSettings(WaySettings):
    """Settings of all ways; symbols as in `training.personal`."""

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
        """Return the way as sent to sites; `own` are the ranges of θ that stay at a site."""
        way = super().way_by(name, own)
        return way if name != "apfl" else replace(way, alpha=self.alpha, adapt=self.adapt_alpha)

    def warm_of(self, rounds: int) -> int:
        """Return the number of rounds before the split, out of `rounds`."""
        return max(1, rounds // 2) if self.warm_rounds is None else self.warm_rounds

    def asks_own(self, way: str, visits: Visits = PLAIN) -> tuple[Step[..., Any], ...]:
        """Return the steps of a training by a way, with those of its monitor and its counts."""
        ends = getattr(self, "patience", None) is not None
        counts = own_counts.asks(looks=getattr(self, "looks", False), ends=ends)
        steps = (*asks(way, visits, every=self.every), *counts)
        if self.monitor == "none":
            return steps
        if self.monitor not in heterogeneity.KINDS:  # it sees the models
            return tuple(dict.fromkeys((visits.gather, *steps)))
        return tuple(dict.fromkeys((visits.sum, *heterogeneity.STEPS, *steps)))

    def own_bounds(self, ways: Iterable[Way], rounds: int) -> Mapping[str, Collection[Any]]:
        """Return the allowed arguments of the personalised steps (`Method.bounds`)."""
        own = super().own_bounds(ways, rounds)
        sides = {"models": (self.n_clusters,), "side": range(self.n_clusters)}
        return {**own, **sides, "least": (self.min_sites,)}


@dataclass(frozen=True, kw_only=True)
class MaybeOwnSettings(OwnSettings):
    """The same, for methods with one model for all sites unless `personal` is set."""

    user: str = changed(UserSettings, "user", doc="Site of the personal model, if there is one")
    personal: str = setting(
        "none", "Way of personalisation; none: one model for all", choices=PERSONAL
    )

    def check_personal(self) -> None:
        """Refuse settings of averaging that do not fit a personal model.

        Raises
        ------
        SettingError : names the first one.
        """
        c: Any = self
        self.check_way(self.personal)
        if self.personal == "none":
            self.check(("user", self.user != ALL, "a way in 'personal' too, or no user"))
            return
        check_kept(self)
        counted = c.patience_by == "count" and self.personal in PARTED
        after = self.personal in AFTER
        common = (
            "which looks at the common model; leave it out, or give patience_by 'count' with "
            "personal 'fedper' or 'fedrep'"
        )
        misfits = (
            (c.strategy not in RULES,
             f"strategy {c.strategy!r}: it averages no models; give 'fedavg'"),
            (c.aggregation != "mean",
             f"aggregation {c.aggregation!r}, which sees models; give 'mean'"),
            (c.patience is not None and not counted, f"a patience, {common}"),
            (c.lr_rule == "plateau" and not counted, f"lr_rule 'plateau', {common}"),
            (c.looks and self.monitor != "none",
             "a patience or plateau beside a monitor; leave one of them out"),
            (c.looks and bool(getattr(self, "keep_rounds", ())),
             "keep_rounds beside a patience or plateau; leave one of them out"),
            (c.optimiser_state != "fresh" and not after,
             f"optimiser_state {c.optimiser_state!r}, as the optimiser of a site's own part begins "
             f"anew; give 'fresh'"),
            (c.compression != "none" and not after,
             f"compression {c.compression!r}, which averages the whole model; give 'none'"),
        )  # fmt: skip
        for wrong, what in misfits:
            if wrong:
                raise SettingError(
                    f"setting 'personal' of method {self.method!r} is {self.personal!r}, which "
                    f"does not go with {what}."
                )

    @property
    def every(self) -> bool:
        """Whether each site gets a model of its own, which it keeps."""
        return super().every and self.personal != "none"

    def check_sites(self, sites: int) -> None:
        """Refuse a personal model over too few sites."""
        super().check_sites(sites)
        if self.personal != "none" and not self.every:
            check_number(self.personal, sites)

    def personal_way(self, plan: Plan) -> Way:
        """Return the way as sent to sites; in fedper and fedrep a network's last layer stays at its
        site.
        """
        parted = self.personal in PARTED
        return self.way_by(self.personal, last_layer(plan.network) if parted else ())

    def reveals_own(self, seen_by: str) -> str:
        """Return, in plain words, what leaves a site beside or instead of the mean of models.

        Parameters
        ----------
        seen_by : who sees the user's model.
        """
        if self.every:
            return self._reveals_sums()
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

    def _reveals_sums(self) -> str:
        """Return the same of a model for each site."""
        told = (
            "at the end the number of sites with rows to learn from, and the losses of their "
            "models, as sums over sites; each site's own model stays there"
        )
        if self.personal == "cluster":
            return (
                "once the sum of the losses of trial models; each round, sums of the models of the "
                f"sites that take each, and how many these are; {told}"
            )
        return told + "; so does its last layer" * (self.personal in PARTED)


#: What `user` of a method with a model for each site is.
USER = "Site of the personal model; all: a model for every site, which stays there; required"
USER_IF_ANY = "Site of the personal model, if there is one; all: one for every site, kept there"


def check_kept(config: Any) -> None:
    """Refuse kept rounds of a model for each site: a site keeps its last model.

    Raises
    ------
    SettingError : both are set.
    """
    if config.every and getattr(config, "keep_rounds", ()):
        raise SettingError(
            f"with user {config.user!r} of method {config.method!r} each site keeps its model "
            f"after the last round, and of no other; leave out keep_rounds."
        )


def check_switch(way: str, method: str) -> None:
    """Refuse a way that cannot start from a common model.

    Raises
    ------
    SettingError : the way is not in `SWITCHED`.
    """
    if way not in SWITCHED:
        raise SettingError(
            f"with a monitor, method {method!r} continues in a personal way once sites differ, but "
            f"{way!r} cannot start from a common model; give {', '.join(SWITCHED)}, or no monitor."
        )
