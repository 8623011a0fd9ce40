"""The block `privacy:` of a study file: secure sums, small cells, differential privacy.

    privacy:
      secure_aggregation: auto          # auto (default), true or false
      min_cell: 5
      dp: {epsilon: 1.0, delta: 1e-5, unit: record}     # clip: null uses the method's own

`secure_aggregation` sets how `sum` is formed over three or more sites:

    auto   exactly, in a ring; over a network each site masks its part, in one process there are no
           masks. Fewer than three sites: plain sums, marked as not masked in the ledger
    true   always masked; fewer than three sites are refused
    false  plain sums of floats; the coordinator sees each site's part

Revealed: nothing; this module reads text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcohort.protocol.errors import SettingError
from fedcohort.protocol.method import Method
from fedcohort.protocol.private import MOST, Dp
from fedcohort.secure import FEWEST
from fedcohort.study.file.reader import Reader, spelled
from fedcohort.study.file.yamlfile import Where, nearest

#: Values of `secure_aggregation`.
SECURE = ("auto", "true", "false")
__all__ = ["FEWEST", "Privacy", "check_visible", "checked_secure", "read", "secure_of"]

KEYS = ("secure_aggregation", "min_cell", "dp")
DP = ("epsilon", "delta", "unit", "clip")
UNITS = ("record", "site")
#: Largest clipping norm (`protocol.private.Dp`).
MOST_CLIP = 1e6
_HERE: Where = ("privacy",)


@dataclass(frozen=True)
class Privacy:
    """The privacy options of a study.

    Attributes
    ----------
    secure : one of `SECURE`.
    min_cell : smallest count in a cell of anything revealed.
    dp : differential privacy of each fit; None without.
    """

    secure: str = "auto"
    min_cell: int = 5
    dp: Dp | None = None

    @property
    def content(self) -> dict[str, Any]:
        """The options in the form of results.json."""
        dp = self.dp
        spoken = None
        if dp is not None:
            spoken = {"epsilon": dp.epsilon, "delta": dp.delta, "unit": dp.unit, "clip": dp.clip}
        asked: bool | str = self.secure if self.secure == "auto" else self.secure == "true"
        return {"secure_aggregation": asked, "dp": spoken, "min_cell": self.min_cell}


def secure_of(value: object) -> str | None:
    """Return a value of `secure_aggregation` as one of `SECURE`; None if it is invalid."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) and value in SECURE else None


def checked_secure(value: object, sites: int) -> str:
    """Return the way sums are formed, for a fit over so many sites.

    Raises
    ------
    SettingError : an unknown value, or `true` with too few sites to hide one another.
    """
    secure = secure_of(value)
    if secure is None:
        raise SettingError(f"secure_aggregation is {value!r}; {nearest(value, SECURE)}")
    if secure == "true" and sites < FEWEST:
        raise SettingError(
            f"secure_aggregation is true, and there {'is' if sites == 1 else 'are'} {sites} "
            f"site{'s' * (sites != 1)}: a masked sum needs {FEWEST} or more. Add sites, or set "
            f"secure_aggregation to auto."
        )
    return secure


def check_visible(secure: str, method: Method, config: Any) -> None:
    """Refuse settings that need single replies if masks are required.

    Raises
    ------
    SettingError : `secure` is "true", and a setting of the method excludes masks.
    """
    if secure == "true" and (what := config.visible):
        raise SettingError(
            f"method {method.name!r} has {what}, for which the coordinator sees each site's reply, "
            f"and secure_aggregation is true. Change one of these two settings."
        )


def read(reader: Reader) -> Privacy:
    """Return the privacy options of a study file.

    Raises
    ------
    StudyError : an unknown key, or an impossible value; file, line and key are named.
    """
    given = reader.mapping(_HERE, KEYS)
    where: Where = (*_HERE, "secure_aggregation")
    secure = secure_of(given.get("secure_aggregation", "auto"))
    if secure is None:
        raise reader.doc.error(where, "expected auto, true or false.")
    return Privacy(secure, reader.whole((*_HERE, "min_cell"), 5, low=1), _dp(reader, given))


def _dp(reader: Reader, given: Mapping[str, Any]) -> Dp | None:
    """Return (ε, δ) with unit and clip; None if `dp` is missing or false."""
    where: Where = (*_HERE, "dp")
    if given.get("dp", False) is False:
        return None
    reader.mapping(where, DP, required=("epsilon",))
    epsilon = _above(reader, (*where, "epsilon"), 1.0, MOST)
    delta = reader.number((*where, "delta"), Dp.delta, 0.0, 1.0, open_ends=True)
    unit = reader.choice((*where, "unit"), UNITS, Dp.unit)
    clip = None
    if reader.get((*where, "clip")) is not None:
        clip = _above(reader, (*where, "clip"), 1.0)
    return Dp(epsilon=epsilon, delta=delta, unit=unit, clip=clip)


def _above(reader: Reader, where: Where, default: float, most: float = MOST_CLIP) -> float:
    """Return a number above 0 and up to `most`."""
    value = spelled(reader.get(where, default))
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits or not 0 < value <= most:
        up_to = f", up to {most:g}" if fits and value > most else ""
        raise reader.doc.error(where, f"expected a number above 0{up_to}.")
    return float(value)
