"""Settings of a method: how each is declared, checked, and read from user input.

A setting is declared once: default, description, unit, choices and limits. Settings that several
methods share are a block, a frozen dataclass from which the methods' settings inherit. A method
with another default or text declares only that (`changed`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Self, cast

import numpy as np

from fedcohort.protocol.errors import SettingError


def setting(
    default: Any, doc: str, unit: str = "", choices: Sequence[Any] = (), within: str = "",
    elsewhere: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Declare a setting.

    Parameters
    ----------
    default, doc, unit, choices : its default, description, unit, and possible values.
    within : interval of its number, or of each of its numbers, such as "[0, inf)":
        a bracket includes its end, a parenthesis does not.
    elsewhere : its names in other programs, to which an error about an unknown setting answers.
    """
    meta = {
        "doc": doc, "unit": unit, "choices": tuple(choices), "within": within,
        "elsewhere": tuple(elsewhere),
    }  # fmt: skip
    return field(default=default, metadata=meta)


def changed(block: type[Any], name: str, **new: Any) -> Any:
    """Declare a setting of a block again; `new` has what differs, as `setting` takes it."""
    old: Any = block.__dataclass_fields__[name]
    return setting(**{"default": old.default, **old.metadata, **new})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of the settings of all methods; it checks limits when they are built.

    A class names them in its head: ``class MySettings(Settings, method="mine", alone={...})``.

    Attributes
    ----------
    method : name of the method, for errors.
    alone : settings that replace the user's if one table holds all rows (the bounds of a
        study), because nothing has to be protected from a coordinator.
    later, first : settings of a second phase, which are tuned after the others; and settings that
        end a fit before it.
    """

    method: ClassVar[str] = ""
    alone: ClassVar[Mapping[str, Any]] = types.MappingProxyType({})
    later: ClassVar[tuple[str, ...]] = ()
    first: ClassVar[Mapping[str, Any]] = types.MappingProxyType({})

    def __init_subclass__(
        cls, *, method: str | None = None, alone: Mapping[str, Any] | None = None,
        later: tuple[str, ...] = (), first: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init_subclass__()
        if method is not None:
            cls.method = method
        if alone is not None:
            cls.alone = alone
        if first is not None:
            cls.later, cls.first = later, first

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for f in dataclasses.fields(self):
            within = f.metadata.get("within", "")
            if within and not _inside(getattr(self, f.name), within):
                self.check((f.name, False, _in_words(within, hints[f.name])))

    def check(self, *rules: tuple[str, bool, str]) -> None:
        """Refuse a setting that breaks a rule.

        Parameters
        ----------
        rules : per setting its name, whether its value is fine, and what to give instead.

        Raises
        ------
        SettingError : for the first setting that is not fine.
        """
        whose = f" of method {self.method!r}" if self.method else ""
        for name, fine, wanted in rules:
            if not fine:
                value = getattr(self, name)
                raise SettingError(f"setting {name!r}{whose} is {value!r}; give {wanted}.")

    def check_sites(self, sites: int) -> None:
        """Refuse settings that need more sites.

        Raises
        ------
        SettingError : the message has the setting, the number of sites and the number needed.
        """

    def check_task(self, kind: str) -> None:
        """Refuse settings with which the method does not serve a kind of task that it lists.

        Raises
        ------
        SettingError : the message has the setting that it needs.
        """

    def unfinished(self, sites: int) -> str:
        """Return a warning if a fit over so many sites ends too early; "" if not."""
        return ""

    def check_columns(self, features: int, most: int | None = None) -> None:
        """Refuse settings that do not fit the number of columns.

        Parameters
        ----------
        features, most : fewest and most columns; without `most` the number of columns.

        Raises
        ------
        SettingError : the message has both numbers.
        """

    @property
    def visible(self) -> str:
        """Name of the setting that makes masked sums impossible; "" if none does."""
        return ""

    @property
    def validated(self) -> str:
        """Name of the setting that needs validation rows of the coordinator; "" if none does."""
        return ""

    @property
    def first_rows(self) -> str:
        """Name of the setting that needs the coordinator's rows of a first model, or ""."""
        return ""

    @property
    def ranks(self) -> bool:
        """Whether predictions can differ between patients."""
        return True

    @classmethod
    def meant(cls, name: str) -> str:
        """Return the setting that other programs call `name`; "" for none."""
        own = (f for f in dataclasses.fields(cls) if name in f.metadata.get("elsewhere", ()))
        return next((f.name for f in own), "")

    @classmethod
    def typed(cls, given: Mapping[str, Any], method: str, more: Collection[str] = ()) -> Self:
        """Build the settings from user input.

        Parameters
        ----------
        method : for errors.
        more : names that are no settings, but may have been meant.

        Raises
        ------
        SettingError : a name is unknown (the message gives the nearest), or a value has the wrong
            type.
        """
        known = {f.name: f for f in dataclasses.fields(cls)}
        hints = _hints(cls)
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                near = (
                    [cls.meant(name)]
                    if cls.meant(name)
                    else difflib.get_close_matches(name, sorted({*known, *more}), n=1)
                )
                hint = f"did you mean {near[0]!r}?" if near else f"it knows {sorted(known)}."
                raise SettingError(f"method {method!r} has no setting {name!r}; {hint}")
            values[name] = value = _coerced(method, name, value, hints[name])
            choices = known[name].metadata.get("choices", ())
            if choices and value is not None and value not in choices:
                raise SettingError(
                    f"setting {name!r} of method {method!r} is {value!r}; choose one of "
                    f"{', '.join(map(repr, choices))}."
                )
        if lacking := sorted(
            n for n, f in known.items() if n not in values and not _has_default(f)
        ):
            raise SettingError(f"method {method!r} needs a value for {', '.join(lacking)}.")
        try:
            return cls(**values)
        except ValueError as error:
            raise SettingError(f"method {method!r}: {error}") from None


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _has_default(one: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return one.default is not missing or one.default_factory is not missing


def _inside(value: Any, within: str) -> bool:
    """Return whether a number, or each of several, is in an interval; true for text and None."""
    if isinstance(value, tuple):
        return all(_inside(one, within) for one in cast("tuple[Any, ...]", value))
    if value is None or isinstance(value, str):
        return True
    low, high = (float(end) for end in within[1:-1].split(","))
    above = low < value if within[0] == "(" else low <= value
    return above and (value < high if within[-1] == ")" else value <= high)


def _in_words(within: str, hint: Any) -> str:
    """Return what to give instead of a value outside an interval, by the setting's type."""
    low, high = (end.strip().replace("_", ",") for end in within[1:-1].split(","))
    options = typing.get_args(hint) or (hint,)
    what = "a whole number" if int in options and float not in options else "a number"
    if typing.get_origin(hint) is tuple:
        what = what.removeprefix("a ") + "s"
    words = {
        "()": f"{what} between {low} and {high}",
        "[]": f"{what} from {low} to {high}",
        "(]": f"{what} above {low}, up to {high}",
        "[)": f"{what} from {low} to below {high}",
    }[within[0] + within[-1]]
    if high == "inf":
        words = what + f" {'above' if within[0] == '(' else 'from'} {low}" * (low != "-inf")
    texts = [a for o in options if typing.get_origin(o) is typing.Literal for a in o.__args__]
    return ", or ".join([words, *map(repr, texts), *["null"] * (type(None) in options)])


def _coerced(method: str, name: str, value: Any, hint: Any) -> Any:
    """Return `value` as the type that a setting declares.

    Whole numbers become real ones, lists become tuples, and ``"1e-3"``, which is text in YAML 1.1,
    becomes the number.
    """
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    options: tuple[Any, ...] = typing.get_args(hint) if union else (hint,)
    for option in options:
        origin = typing.get_origin(option) or option
        if origin is tuple and _is_list(value):
            items: list[Any] = list(cast("list[Any]", value))
            args = typing.get_args(option)
            item = args[0] if args else Any
            if typing.get_origin(item) is tuple and not all(map(_is_list, items)):
                continue
            return tuple(_coerced(method, name, v, item) for v in items)
        if origin is typing.Literal:
            if value in typing.get_args(option):
                return value
        elif option in (int, float):
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            real = whole or (isinstance(value, (float, np.floating)) and not np.isnan(value))
            if whole if option is int else real:
                return option(value)
        elif option is Any or (isinstance(origin, type) and isinstance(value, origin)):
            return value
    if float in options and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return _coerced(method, name, float(value), hint)
    wanted = " or ".join(_named(option) for option in options)
    raise SettingError(
        f"setting {name!r} of method {method!r} is {value!r}; it must be of type {wanted}."
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _named(option: Any) -> str:
    """Return a type in words; for a literal, its values, for a list an example."""
    if typing.get_origin(option) is tuple:
        item: Any = typing.get_args(option)[0]
        lists = typing.get_origin(item) is tuple
        some = "[[a, b], [c]]" if lists else "[a, b]" if item is str else "[1, 2]"
        return f"list{' of lists' if lists else ''}, such as {some}"
    if typing.get_origin(option) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(option)))
    return getattr(option, "__name__", str(option)).replace("NoneType", "null")
