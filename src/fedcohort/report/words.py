"""Words and numbers of the page: numbers as in a medical journal, counts, titles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedcohort.report.metric_texts import METRICS as METRICS
from fedcohort.report.metric_texts import Metric as Metric
from fedcohort.report.metric_texts import metric as metric

MISSING = "–"
#: Why a site of a network is not among those compared, if it does not lack patients.
AWAY = "it did not answer"

#: Plain titles of names in a study file without titles.
TITLES: Mapping[str, str] = {
    "iid": "Patients spread at random",
    "unbalanced": "One large hospital",
    "by-outcome": "Hospitals differ in survival",
    "by-feature": "Hospitals differ in their patients",
    "dirichlet": "Hospitals differ in their mix",
    "by-group": "Hospitals see different groups",
    "views": "Hospitals lack views",
    "natural": "The hospitals as they are",
    "network": "The hospitals of the network",
    "isolated": "Each hospital alone",
    "centralised": "All data in one place",
}


#: Keys under `governance` of a study file → labels.
GOVERNANCE: Mapping[str, str] = {
    "purpose": "Purpose",
    "legal_basis": "Legal basis",
    "ethics": "Ethics number",
    "recipients": "Recipients",
    "retention": "Kept for",
}


def title(name: str, given: Any = None, task: str = "survival") -> str:
    """Return the page's title of an arm or scenario; one that only spells its name is none."""
    own = str(given or "")
    bare = name.replace("-", " ").replace("_", " ")
    if own and own.replace("-", " ").replace("_", " ") != bare:
        return own
    if name == "by-outcome" and task != "survival":
        return "Hospitals differ in the outcome"
    return TITLES.get(name, bare)


def number(value: Any) -> float:
    """Return a value of a results file as a float; null, text and infinities give NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    return float(value) if math.isfinite(value) else math.nan


def fixed(value: Any, digits: int = 3) -> str:
    """Return a number with n decimals and a true minus sign, or a dash."""
    x = number(value)
    if math.isnan(x):
        return MISSING
    text = f"{x:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def between(low: Any, high: Any, digits: int = 3) -> str:
    """Return an interval: with an en dash, or with "to" where a minus sign would clash."""
    a, b = fixed(low, digits), fixed(high, digits)
    if MISSING in (a, b):
        return ""
    return f"{a} to {b}" if "−" in a + b else f"{a}–{b}"


def estimate(value: Any, low: Any = None, high: Any = None, digits: int = 3) -> str:
    """Return ``0.684 (0.671–0.697)``, without a missing interval."""
    interval = between(low, high, digits)
    return f"{fixed(value, digits)} ({interval})" if interval else fixed(value, digits)


def decimals(value: Any, digits: int = 4) -> int:
    """Return the decimals of a number with n significant digits."""
    x = number(value)
    whole = 0 if math.isnan(x) or x == 0 else math.floor(math.log10(abs(x)))
    return max(0, digits - 1 - whole)


def significant(value: Any, digits: int = 4) -> str:
    """Return a number with n significant digits."""
    return fixed(value, decimals(value, digits))


def effect(value: Any, digits: int = 3) -> str:
    """Return a coefficient: so many decimals, or significant digits if it is smaller.

    An effect per unit of a large unit is small only by its unit.
    """
    x = number(value)
    if math.isnan(x) or x == 0 or 0.1 <= abs(x) < 1e6:
        return fixed(x, digits)
    if 1e-4 <= abs(x) < 0.1:
        return significant(x, digits)
    return f"{x:.{digits - 1}e}".replace("-", "−")


def percent(share: float) -> str:
    """Return a share as a whole percentage."""
    return MISSING if math.isnan(share) else f"{fixed(100 * share, 0)} %"


def p_value(value: Any) -> str:
    """Return a p-value as journals print it."""
    x = number(value)
    if math.isnan(x):
        return MISSING
    if x < 0.001:
        return "< 0.001"
    return f"{x:.3f}" if x < 0.1 else f"{x:.2f}"


def probability(value: Any) -> str:
    """Return a posterior probability, with bounds where three digits do not tell it from 0 or 1."""
    x = number(value)
    if math.isnan(x):
        return MISSING
    return "< 0.001" if x < 0.001 else "> 0.999" if x > 0.999 else f"{x:.3f}"


def ratio(value: Any) -> str:
    """Return a hazard ratio: three significant digits; near 1, two of its distance to 1."""
    x = number(value)
    if math.isnan(x):
        return MISSING
    if x >= 1e4 or 0 < x < 1e-3:
        return f"{x:.1e}".replace("-", "−")
    if x >= 100:
        return f"{x:.0f}"
    if 0 < x < 0.01:
        return f"{x:.4f}"
    if f"{x:.2f}" != "1.00" or x == 1:
        return f"{x:.2f}"
    near = decimals(x - 1, 2)
    return f"{x:.{near}f}" if 3 < near < 10 and abs(x - 1) < 1e-3 else f"{x:.3f}"


def count(value: Any) -> str:
    """Return a count with commas between thousands; a fraction keeps one decimal."""
    x = number(value)
    if math.isnan(x):
        return MISSING
    return f"{x:,.0f}" if abs(x - round(x)) < 0.05 else f"{x:,.1f}"


def of(n: float, singular: str, plural: str | None = None) -> str:
    """Return a count and its noun, in the number that it needs."""
    return f"{count(n)} {singular if count(n) == '1' else plural or singular + 's'}"


def size(value: Any) -> str:
    """Return a number of bytes in the unit that suits it."""
    x = number(value)
    if math.isnan(x):
        return MISSING
    for unit in ("bytes", "kB", "MB", "GB"):
        if x < 1000 or unit == "GB":
            return f"{x:,.0f} {unit}" if unit == "bytes" or x >= 100 else f"{x:.1f} {unit}"
        x /= 1000
    raise AssertionError


def duration(value: Any) -> str:
    """Return seconds as people say them."""
    x = number(value)
    if math.isnan(x):
        return MISSING
    if x < 9.95:
        return f"{x:.1f} s" if x >= 0.1 else f"{1000 * x:.0f} ms"
    whole = round(x)
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


_SPELT = (
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
)  # fmt: skip


def spelt(n: int) -> str:
    """Return a small count as a word, a larger one in figures."""
    return _SPELT[n] if n < len(_SPELT) else count(n)


def inline(label: str) -> str:
    """Return a metric's label within a sentence: names and acronyms keep their capitals."""
    kept = label[1:2] in "-’'" or not label[1:2].islower() or label.startswith(("Brier", "Uno"))
    return label if kept else label[0].lower() + label[1:]


def with_article(label: str) -> str:
    """Return a metric's label in a sentence with its spoken article: an AUC."""
    spelt = label[1:2] not in "-’'" and not label[1:2].islower()
    return f"{'an' if label[:1] in ('AEFHILMNORSX' if spelt else 'AEIO') else 'a'} {inline(label)}"


def unbroken(text: str) -> str:
    """Return text with unbreakable "95 %" and "C-index"."""
    return text.replace(" %", "\u00a0%").replace("C-index", "C\u2011index")


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: "a", "a and b", "a, b and c"."""
    *others, last = names or [""]
    return f"{', '.join(others)} and {last}" if others else last


def some(names: Sequence[str], most: int = 6) -> str:
    """Return names as `listed`; beyond n names the first ones, and how many more."""
    if len(names) <= most:
        return listed(names)
    return listed([*names[: most - 1], f"{count(len(names) - most + 1)} more"])


def spaced(name: str) -> str:
    """Return an identifier as words."""
    return name.replace("_", " ").strip()


def value(item: Any) -> str:
    """Return any value of a results file as short text."""
    if item is None or item == "":
        return "none"
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, float):
        return f"{item:g}"
    if isinstance(item, Mapping):
        return ", ".join(f"{spaced(str(k))} {value(v)}" for k, v in item.items()) or "none"
    if isinstance(item, Iterable) and not isinstance(item, str):
        return ", ".join(value(v) for v in item) or "none"
    return str(item)


def absent_from_final(missing: Iterable[Mapping[str, Any]], arm: str) -> list[str]:
    """Return the sites whose rows are missing from sums of an arm's final fit, in order.

    missing : of results.json: site, arm, and repeat, "final" of a final fit.
    """
    return sorted({str(m["site"]) for m in missing if (m["arm"], m["repeat"]) == (arm, "final")})


def sites_left_out(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the sites that do not take part by themselves, by reason; "" for none.

    rows : of results.json: site, why, and to (the site that it joins, or None).
    """
    by_fate: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        key = str(row["why"]), str(row["to"] or "")
        by_fate.setdefault(key, []).append(repr(str(row["site"])))
    return "; ".join(
        f"{', '.join(names)} ({why}{f', part of {to!r}' if to else ''})"
        for (why, to), names in by_fate.items()
    )
