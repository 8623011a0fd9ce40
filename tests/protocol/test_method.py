"""What a user types becomes a method's settings, or an error that says what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from fedcohort.protocol import NotSupported, SettingError, Settings, Task, changed, setting
from toys import NoModel, toy_method


@dataclass(frozen=True, kw_only=True)
class Toy(Settings):
    learning_rate: float = setting(0.1, "step size")
    rounds: int = setting(10, "rounds")
    layers: tuple[int, ...] = setting((8, 4), "widths")
    ties: str = setting("efron", "tie rule", choices=("efron", "breslow"))
    time_grid: str | int = setting("protected", "grid")
    patience: int | None = setting(None, "rounds without gain")
    user: str | None = setting(None, "site", choices=("a", "b"))
    mode: Literal["fast", "exact"] = setting("fast", "mode")
    verbose: bool = setting(False, "talk")

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}; it must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class Needy(Settings):
    q: int


@pytest.mark.parametrize(
    ("name", "typed", "expected"),
    [
        ("learning_rate", 1, 1.0),
        ("learning_rate", "1e-3", 0.001),
        ("learning_rate", np.float32(0.5), 0.5),
        ("rounds", np.int64(3), 3),
        ("layers", [16, 8], (16, 8)),
        ("layers", [], ()),
        ("time_grid", 20, 20),
        ("time_grid", "exact", "exact"),
        ("patience", None, None),
        ("patience", 5, 5),
        ("user", None, None),
        ("user", "b", "b"),
        ("mode", "exact", "exact"),
        ("verbose", True, True),
    ],
)
def test_a_value_becomes_the_type_of_its_setting(name, typed, expected):
    built = getattr(toy_method(Toy).configure({name: typed}), name)
    assert built == expected
    assert type(built) is type(expected)


@pytest.mark.parametrize(
    ("name", "typed", "wanted"),
    [
        ("learning_rate", "fast", "float"),
        ("learning_rate", True, "float"),
        ("learning_rate", float("nan"), "float"),
        ("learning_rate", "nan", "float"),
        ("learning_rate", None, "float"),
        ("rounds", 2.5, "int"),
        ("rounds", "10", "int"),
        ("rounds", True, "int"),
        ("layers", 8, r"list, such as \[1, 2\]"),
        ("layers", "84", "list"),
        ("layers", [8, "4"], "int"),
        ("patience", "never", "int or null"),
        ("time_grid", 0.5, "str or int"),
        ("mode", "slow", "'fast' or 'exact'"),
        ("verbose", 1, "bool"),
    ],
)
def test_a_value_of_another_type_is_refused_naming_setting_method_and_type(name, typed, wanted):
    with pytest.raises(SettingError, match=rf"'{name}' of method 'toy' is .* {wanted}"):
        toy_method(Toy).configure({name: typed})


@pytest.mark.parametrize(
    ("typed", "near"),
    [("learning_rat", "learning_rate"), ("round", "rounds"), ("scal", "scale"), ("tie", "ties")],
)
def test_an_unknown_setting_names_the_nearest_known_one(typed, near):
    with pytest.raises(SettingError, match=f"no setting '{typed}'; did you mean '{near}'"):
        toy_method(Toy).configure({typed: 1})


def test_an_unknown_setting_that_is_like_none_lists_all():
    with pytest.raises(SettingError, match=r"it knows .*'layers'.*'verbose'"):
        toy_method(Toy).configure({"zzz": 1})


def test_a_value_that_is_no_choice_lists_the_choices():
    with pytest.raises(SettingError, match=r"'ties'.*'exact'; choose one of 'efron', 'breslow'"):
        toy_method(Toy).configure({"ties": "exact"})


def test_what_the_settings_themselves_refuse_is_a_setting_error():
    with pytest.raises(SettingError, match="method 'toy': rounds is 0; it must be at least 1"):
        toy_method(Toy).configure({"rounds": 0})


@dataclass(frozen=True, kw_only=True)
class Limited(Settings, method="toy"):
    half: float = setting(0.5, "", within="[0, 1)")
    share: float = setting(0.5, "", within="(0, 1]")
    tol: float = setting(0.5, "", within="(0, 1)")
    size: int = setting(1, "", within="[1, 10_000]")
    rate: float | None = setting(None, "", within="(0, inf)")
    penalty: float | Literal["auto"] = setting("auto", "", within="[0, inf)")
    widths: tuple[int, ...] = setting((), "", within="[1, inf)")
    loss: float = setting(0.0, "", within="(-inf, inf)")


@pytest.mark.parametrize(
    ("name", "ends", "beyond", "wanted"),
    [
        ("half", (0.0, 0.99), (-0.1, 1.0), "a number from 0 to below 1"),
        ("share", (0.01, 1.0), (0.0, 1.1), "a number above 0, up to 1"),
        ("tol", (0.01, 0.99), (0.0, 1.0), "a number between 0 and 1"),
        ("size", (1, 10_000), (0, 10_001), "a whole number from 1 to 10,000"),
        ("rate", (None, 1e-9), (0.0, float("inf")), "a number above 0, or null"),
        ("penalty", ("auto", 0.0), (-1.0, float("inf")), "a number from 0, or 'auto'"),
        ("widths", ((), (1, 2)), ((1, 0),), "whole numbers from 1"),
        ("loss", (-1e9,), (float("inf"),), "a number"),
    ],
)
def test_a_number_beyond_its_interval_is_refused_with_the_interval_in_words(
    name, ends, beyond, wanted
):
    for value in ends:
        assert getattr(Limited(**{name: value}), name) == value
    for value in beyond:
        with pytest.raises(SettingError) as caught:
            Limited(**{name: value})
        told = f"setting {name!r} of method 'toy' is {value!r}; give {wanted}."
        assert str(caught.value) == told


def test_a_changed_setting_keeps_what_is_not_said_anew():
    @dataclass(frozen=True, kw_only=True)
    class Other(Limited):
        half: float = changed(Limited, "half", default=0.1, doc="another")

    field = Other.__dataclass_fields__["half"]
    assert (field.default, field.metadata["doc"], field.metadata["within"]) == (
        0.1, "another", "[0, 1)",
    )  # fmt: skip
    with pytest.raises(SettingError, match="give a number from 0 to below 1"):
        Other(half=1.0)


def test_what_a_block_says_of_the_pooled_fit_holds_behind_a_block_that_says_nothing():
    class Silent(Settings): ...

    class Saying(Settings, alone={"half": 1}): ...

    class Both(Silent, Saying, method="both"): ...

    assert (Both.alone, Both.method, Settings.method) == ({"half": 1}, "both", "")


def test_a_setting_without_a_default_must_be_given():
    assert toy_method(Needy).configure({"q": 2}).q == 2
    with pytest.raises(SettingError, match="method 'toy' needs a value for q"):
        toy_method(Needy).configure({})


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("predict", (0,)),
        ("predict_survival", (0, 0)),
        ("transform", (0,)),
        ("sample", (1, None)),
        ("impute", (0,)),
        ("summary", ()),
        ("at_round", (1,)),
    ],
)
def test_a_fit_supports_nothing_that_its_method_does_not_add(what, arguments):
    with pytest.raises(NotSupported, match=f"^{what}$"):
        getattr(NoModel(), what)(*arguments)


def test_the_coordinators_draws_depend_on_the_seed_alone():
    draw = [Task(kind="survival", features=(), seed=s).rng.random() for s in (1, 1, 2)]
    assert draw[0] == draw[1] != draw[2]
