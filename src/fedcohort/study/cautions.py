"""What a study says of a fit that its rows do not bear: too many parameters, too much noise.

Both stand in results.json, each with the name of its arm, and in the report; what there is to say
of noise is known before the fit, and is logged then.

Revealed: nothing beside what `free_parameters` and `drowned` say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from fedcohort.data.prepare.design import Design
from fedcohort.data.words import first_of
from fedcohort.protocol import Dp, registry
from fedcohort.study.arms import Arm
from fedcohort.study.drowned import drowned
from fedcohort.study.engine import Run
from fedcohort.study.free_parameters import crowded, free_parameters

#: So many columns that were filled in are named.
FILLED_NAMED = 5

_log = logging.getLogger(__name__)


def told_if_crowded(
    run: Run, arm: Arm, chosen: Mapping[str, Any], rows: Iterable[int | None]
) -> list[dict[str, str]]:
    """Return notes where a model has too many free parameters for some sites' rows, and its own.

    Parameters
    ----------
    rows : of each site, to train on; None of one that does not show them.
    """
    if arm.scope != "sites":
        return []
    features = len(run.design.features) - bool(run.design.offset)
    note = crowded(free_parameters(arm.method, arm.configured(chosen), features), rows)
    return [{"note": told} for told in (note, *run.model.cautions()) if told]


def filled_note(design: Design) -> str:
    """Say which columns were filled in in many rows; "" where none was.

    An interval takes filled-in values for measured ones.
    """
    if not design.filled:
        return ""
    most = sorted(design.filled, key=lambda name: -design.filled[name])
    listed = first_of([f"{name!r} ({design.filled[name]:.0%})" for name in most], FILLED_NAMED)
    return (
        f"missing values are filled in (impute: {design.impute}) in many rows of {listed}, so that "
        f"intervals are too narrow and effects may be biased; leave the column out, or try impute: "
        f"{'indicator' if design.impute == 'iterative' else 'iterative'}"
    )


def filled_rows(design: Design) -> list[dict[str, Any]]:
    """Return a row for each column that was filled in in many rows, with how."""
    return [
        {"column": name, "share": share, "impute": design.impute}
        for name, share in design.filled.items()
    ]


def told_if_drowned(
    arm: Arm, chosen: Mapping[str, Any], dp: Dp | None, rows: Iterable[int | None]
) -> list[dict[str, str]]:
    """Return a note where a fit's noise is more than its records outweigh, and log it.

    Parameters
    ----------
    dp : what the fit is asked for; None without noise.
    rows : as `told_if_crowded`; where one is not shown, nothing is said.
    """
    every = list(rows)
    if dp is None or arm.scope != "sites" or None in every:
        return []
    units = len(every) if dp.unit == "site" else sum(n or 0 for n in every)
    method = registry.find(arm.method)
    note = drowned(method, method.configure(arm.configured(chosen)), dp, units)
    if note:
        _log.warning("arm %s: %s", arm.name, note)
    return [{"note": note}] if note else []
