"""Rows of the coordinator itself in a study file: the key `coordinator_data`.

Nolte et al. (2023), section 3: the server has an initial training set and a validation set, no
other rows leave the sites. `training.networks.validated` says what a fit does with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.protocol import Method, SettingError, registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.reader import Reader
from fedcohort.study.file.yamlfile import Where

KEYS = ("fraction", "source", "validation")
_HERE: Where = ("coordinator_data",)


@dataclass(frozen=True)
class CoordinatorData:
    """Where the coordinator's rows come from, and what they are for.

    Attributes
    ----------
    fraction : share of the study's rows that is taken out of all sites; 0 with a source.
    source : file of the rows; over a network its name in the coordinator's folder; "" without.
    validation : share of the rows for the validation loss; the others are for the first model.
    """

    fraction: float = 0.0
    source: str = ""
    validation: float = 0.5


def read(
    reader: Reader, arms: tuple[Arm, ...], *, network: bool, private: bool
) -> CoordinatorData | None:
    """Return the key, checked with the arms; None if it is absent.

    Raises
    ------
    StudyError : a wrong value; an arm that cannot use such rows, or needs them; a private study.
    """
    doc = reader.doc
    there = reader.get(_HERE) not in (None, False)
    given = reader.mapping(_HERE, KEYS) if there else {}
    share = _share(reader) if there else 0.0
    for arm in (a for a in arms if a.scope != "isolated"):
        method = registry.find(arm.method)
        try:
            config = method.configure(arm.configured())
            check(method, config, there=there, validates=share > 0, begins=there and share < 1)
        except SettingError as error:
            at: Where = _HERE if there else ("arms",)
            raise doc.error(at, f"arm {arm.name!r}: {error}") from None
    if not there:
        return None
    if private:
        raise doc.error(
            _HERE,
            "the first model and the stop would be of rows without noise, and this study is "
            "private. Leave one of them out.",
        )
    if ("fraction" in given) == ("source" in given):
        raise doc.error(_HERE, "expected either 'fraction', or 'source' with a file.")
    if "fraction" in given and network:
        raise doc.error(
            (*_HERE, "fraction"),
            "over a network no rows are taken out of the sites; name the coordinator's own file "
            "as 'source'.",
        )
    source = reader.text((*_HERE, "source"), "")
    plain = not any(c in source for c in "/\\:") and not source.startswith(".")
    if network and not plain:
        raise doc.error(
            (*_HERE, "source"),
            "over a network this is the plain name of a file in the folder 'data' of the "
            "coordinator, such as own.csv.",
        )
    fraction = reader.number((*_HERE, "fraction"), 0.05, 0.0, 0.5) if "fraction" in given else 0.0
    return CoordinatorData(fraction, source, share)


def _share(reader: Reader) -> float:
    """Return the share of rows for validation, from 0 to 1."""
    where = (*_HERE, "validation")
    return 0.0 if reader.get(where) == 0 else reader.number(where, 0.5, 0.0, 1.0)


def check(
    method: Method, config: object, *, there: bool, validates: bool = True, begins: bool = True
) -> None:
    """Check that a fit can use the coordinator's rows, or does not need them.

    Parameters
    ----------
    there : whether the coordinator has rows.
    validates : whether some of them are for validation.
    begins : whether some of them are for a first model.

    Raises
    ------
    SettingError : it cannot, or needs rows that are not there.
    """
    needs = getattr(config, "validated", "")
    if needs and not (there and validates):
        raise SettingError(
            f"method {method.name!r} has {needs}, which needs validation rows of the coordinator: "
            f"give the study coordinator_data with a share 'validation' above 0, or change that "
            f"setting."
        )
    needs = getattr(config, "first_rows", "")
    if needs and not begins:
        raise SettingError(
            f"method {method.name!r} has {needs}, which needs rows of the coordinator for a first "
            f"model: give the study coordinator_data with a share 'validation' below 1, or change "
            f"that setting."
        )
    if not there:
        return
    able = [m for m in registry.names() if registry.find(m).own is not None]
    why = "its fit begins at no model" if method.own is None else method.own(config)
    if why:
        raise SettingError(
            f"method {method.name!r} cannot use rows of the coordinator: {why}. Leave "
            f"coordinator_data out, or take an arm of {', '.join(able[:-1])} or {able[-1]}."
        )
