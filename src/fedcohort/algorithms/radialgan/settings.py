"""Settings of `radialgan`, and the plan that its steps get."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from fedcohort.data.prepare import Head, plain_heads
from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.radial import Radial
from fedcohort.protocol import SettingError, Settings, Task, setting

#: What crosses sites; places of a record that pass through the latent space unchanged.
SHARES, CARRIES = ("mixture", "codes"), ("none", "outcome", "shared")


@dataclass(frozen=True, kw_only=True)
class RadialPlan:
    """What a site needs to know of a fit, as text that it can compare.

    Attributes
    ----------
    inputs : p, columns of x. classes : of the outcome; 0 of survival.
    heads : of the columns, as of `plain_heads`; [] if all are numbers.
    latent, hidden, activation : of the networks. carry : in `CARRIES`.
    cycle : λ. rate : η. batch : rows of a step. l2, predictor : of the site's predictor, its
        penalty and hidden widths. fixed : whether F stays at its start. components : M, most
        normals of a group.
    """

    inputs: int
    classes: int
    heads: Sequence[Sequence[Any]]
    latent: int
    hidden: tuple[int, ...]
    activation: str
    carry: str
    cycle: float
    rate: float
    batch: int
    l2: float
    predictor: tuple[int, ...]
    fixed: bool = False
    components: int = 1

    @property
    def text(self) -> str:
        """JSON text of the plan."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the plan of a text."""
        given = json.loads(text)
        lists: dict[str, Any] = {name: tuple(given.pop(name)) for name in ("hidden", "predictor")}
        return cls(**given, **lists)

    @property
    def outcomes(self) -> int:
        """Number of the outcome's places in a record."""
        return self.classes - 1 if self.classes else 2

    @property
    def groups(self) -> int:
        """Number of groups of records: classes, or censored and event."""
        return self.classes or 2

    @property
    def normals(self) -> int:
        """Number of normals of a site's mixture."""
        return self.groups * self.components

    def codes(self, shared: Sequence[bool]) -> int:
        """Return the number of places of a code; `shared` as of `carried`."""
        return self.latent + len(self.carried(shared))

    @property
    def records(self) -> int:
        """Number of places of a record."""
        return self.inputs + self.outcomes

    def all_heads(self) -> list[list[Any]]:
        """Return the heads of all places of a record, as of `plain_heads`."""
        p = self.inputs
        plain: list[list[Any]] = [list(h) for h in self.heads]
        plain = plain or [["normal", [j], 0.0, 1.0, None, None, False] for j in range(p)]
        there = {j for h in plain for j in h[1]}
        plain += [["normal", [j], 0.0, 1.0, None, None, False] for j in range(p) if j not in there]
        event = ["bernoulli", [p], 0.0, 1.0, 0.0, 1.0, False]
        if not self.classes:
            return [*plain, event, ["normal", [p + 1], 0.0, 1.0, None, None, False]]
        if self.classes == 2:
            return [*plain, event]
        places = list(range(p, self.records))
        return [*plain, ["categorical", places, 0.0, 1.0, None, None, False]]

    def carried(self, shared: Sequence[bool]) -> tuple[int, ...]:
        """Return the places that pass through the latent space.

        Parameters
        ----------
        shared : (p,), whether all sites have a column.
        """
        if self.carry == "none":
            return ()
        columns = [j for j, s in enumerate(shared) if s] if self.carry == "shared" else []
        return (*columns, *range(self.inputs, self.records))

    def binary(self, shared: Sequence[bool]) -> list[tuple[int, float, float]]:
        """Return the places of a code that carry a binary column, with its two values."""
        place = {j: self.latent + k for k, j in enumerate(self.carried(shared))}
        return [
            (place[at[0]], (0.0 - shift) / scale, (1.0 - shift) / scale)
            for kind, at, shift, scale, *_ in self.all_heads()
            if kind == "bernoulli" and at[0] in place
        ]

    def network(self, shared: Sequence[bool]) -> str:
        """Return the spec of a site's networks; `shared` as of `carried`."""
        return Radial(
            inputs=self.records, latent=self.latent, heads=self.all_heads(), hidden=self.hidden,
            activation=self.activation, carried=self.carried(shared),
        ).spec  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RadialSettings(Settings, method="radialgan", alone={"virtual": 0.0}):
    """Settings of one fit of `radialgan`."""

    shares: str = setting(
        "mixture", "What sites see of each other: a mixture fitted to the codes, or each code",
        choices=SHARES,
    )  # fmt: skip
    carry: str = setting(
        "shared",
        "What passes through the latent space unchanged: nothing, the outcome, or the outcome and "
        "the columns that all sites have",
        choices=CARRIES,
    )
    components: int = setting(
        1, "Most normal distributions of the codes of each class; with shares: mixture",
        within="[1, 20]",
    )  # fmt: skip
    q: int = setting(4, "Dimension of the latent space", within="[1, 1000]")
    hidden: tuple[int, ...] = setting(
        (32,), "Widths of the hidden layers of encoder and discriminator; of the decoder in reverse"
    )
    activation: str = setting(
        "relu", "Activation after each hidden layer", choices=tuple(ACTIVATIONS)
    )
    cycle: float = setting(1.0, "λ: weight of the cycle loss", within="[0, inf)")
    virtual: float = setting(
        1.0,
        "Virtual rows for each own row of a site; with shares: codes, which decodes each code of "
        "other sites once, above 0. 0: own rows alone, of a single site, as the bounds are",
        "rows", within="[0, 100]",
    )  # fmt: skip
    rounds: int = setting(
        10, "Exchanges of mixtures; with shares: codes, optimiser steps", "rounds",
        within="[1, inf)",
    )  # fmt: skip
    internal_epochs: int = setting(
        40, "Passes over a site's rows after each exchange; not with shares: codes", "epochs",
        within="[1, inf)",
    )  # fmt: skip
    batch_size: int = setting(64, "Rows, and codes, of an optimiser step", within="[5, inf)")
    learning_rate: float = setting(0.002, "Learning rate η of Adam", within="(0, 1]")
    l2: float = setting(0.01, "Ridge penalty of a site's predictor", within="[0, inf)")
    predictor: tuple[int, ...] = setting(
        (), "Widths of the hidden layers of a site's predictor; none: logistic, softmax or Cox"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(
            ("hidden", all(w > 0 for w in self.hidden), "widths above 0"),
            ("predictor", all(w > 0 for w in self.predictor), "widths above 0"),
        )

    @property
    def every(self) -> bool:
        """Whether each site gets a model of its own, which it keeps."""
        return self.virtual > 0

    @property
    def visible(self) -> str:
        """Name of the setting that shows single replies; "" without an exchange."""
        return f"shares: {self.shares}" if self.virtual else ""

    def check_sites(self, sites: int) -> None:
        """Refuse a translation between fewer than two sites, and several sites without one.

        Raises
        ------
        SettingError : there are fewer, and virtual rows are asked for; or more, and none are.
        """
        if not self.virtual and sites > 1:
            raise SettingError(
                f"method 'radialgan' has virtual: 0, own rows alone, and there are {sites} sites. "
                f"Give virtual above 0; in a study 'bounds: [isolated]' gives the models of own "
                f"rows alone."
            )
        if self.virtual and sites < 2:
            raise SettingError(
                f"method 'radialgan' translates the rows of other sites, and there is {sites} "
                f"site. Add a site, or give virtual: 0 for own rows alone."
            )

    def plan(self, task: Task) -> RadialPlan:
        """Return the plan of each site.

        Raises
        ------
        SettingError : there is no outcome that sites could share.
        """
        classes = _classes(task)
        heads: tuple[Head, ...] = task.heads
        return RadialPlan(
            inputs=len(task.features), classes=classes, heads=plain_heads(heads), latent=self.q,
            hidden=self.hidden, activation=self.activation, carry=self.carry, cycle=self.cycle,
            rate=self.learning_rate, batch=self.batch_size, l2=self.l2, predictor=self.predictor,
            components=self.components,
        )  # fmt: skip


def _classes(task: Task) -> int:
    """Return the number of classes of the outcome; 0 of survival."""
    outcome = task.outcome or {"survival": "survival", "classification": "binary"}.get(task.kind)
    if outcome == "survival":
        return 0
    if outcome == "binary":
        return 2
    if outcome in ("category", "ordinal") and len(task.levels) > 1:
        return len(task.levels)
    raise SettingError(
        "method 'radialgan' needs an outcome that all sites have: two or more classes, or a time "
        "to an event."
    )
