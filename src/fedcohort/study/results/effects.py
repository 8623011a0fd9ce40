"""Coefficients of a fit for results.json: with their covariate's unit, and any penalty.

A coefficient is for one unit of its covariate, which preprocessing may have scaled. For numbers
three keys describe it, from which the effect of any other step follows:

    scale   units of the column in one unit of the covariate
    unit    the column's unit, from the dictionary
    per     the step for reported effects, from the dictionary

A penalty shrinks coefficients towards 0, and an interval around them covers the effect less often
than stated. Such rows hold the penalty under ``shrunken``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.prepare import Design, NumberColumn
from fedcohort.protocol import Method, Row, registry
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Run

#: Settings with the size of a penalty on coefficients.
PENALTIES = ("penalty", "l1", "l2")


def penalty_of(method: Method | str, settings: Mapping[str, Any]) -> str:
    """Return the penalty of a fit with these settings, such as ``l2 0.01``; "" without one."""
    found = registry.find(method) if isinstance(method, str) else method
    config = found.configure(settings)
    given = {name: getattr(config, name, None) for name in PENALTIES}
    sizes = [f"{k} {v:g}" for k, v in given.items() if isinstance(v, (int, float)) and v > 0]
    return ", ".join(sizes) or ("penalty chosen by the data" if "auto" in given.values() else "")


def units_of(design: Design, dictionary: Dictionary) -> dict[str, dict[str, Any]]:
    """Return scale, unit and per of each covariate that is a linearly scaled number, not 0/1."""
    found: dict[str, dict[str, Any]] = {}
    for c in design.columns:
        known = dictionary.variables.get(c.name, c.variable)
        if isinstance(c, NumberColumn) and not c.knots and known.type != "binary":
            row: dict[str, Any] = {"scale": float(c.scale)}
            row |= {"unit": known.unit} if known.unit else {}
            found[c.name] = row | ({"per": known.per} if known.per else {})
    return found


def summarised(
    rows: Sequence[Row], design: Design, dictionary: Dictionary, penalty: str | None
) -> list[Row]:
    """Return the rows of a fit's summary with each number's unit and step, and any penalty."""
    units = units_of(design, dictionary)
    scaled = "1 SD, " if design.scale == "standard" else ""
    found: list[Row] = []
    for row in rows:
        known = units.get(str(row.get("covariate")), {})
        unit = f" {known['unit']}" if "unit" in known else ""
        more: Row = {"unit": f"{scaled}{known['scale']:.4g}{unit}"} if known else {}
        if "per" in known:
            b = row["coefficient"] * known["per"] / known["scale"]
            more["per"] = f"{known['per']:.4g}{unit}"
            ratios = [k for k in row if k.endswith("_ratio")]
            more |= {f"{k}_per": math.exp(min(b, 709.0)) for k in ratios}
        found.append({**row, **more, **({"shrunken": penalty} if penalty else {})})
    return found


def coefficients(
    method: Method, run: Run, settings: Mapping[str, Any], dictionary: Dictionary
) -> list[dict[str, Any]]:
    """Return a row for each coefficient of a fit, with its unit and penalty."""
    units, penalty = units_of(run.design, dictionary), penalty_of(method, settings)
    shrunken = {"shrunken": penalty} if penalty else {}
    return [
        plain(row) | units.get(row["covariate"], {}) | shrunken
        for row in run.model.summary()
        if "coefficient" in row
    ]
