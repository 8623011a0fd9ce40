"""What a fitted model consists of besides its covariates: intercept, variances, scaling, baseline.

With the coefficients, these rows write the model down. Of the upper bound, whose model is not kept
since it has all rows in one place, neither baseline nor scaling stand there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Survival
from fedcohort.data.prepare import NumberColumn
from fedcohort.protocol import Row
from fedcohort.study.results.rows import plain
from fedcohort.study.results.saved import round_times
from fedcohort.study.run.engine import Run


def parameters(run: Run, dictionary: Dictionary, kept: bool) -> list[dict[str, Any]]:
    """Return the model's parameters, times with their unit, and how numbers were scaled.

    Parameters
    ----------
    dictionary : of the table, for the unit of time.
    kept : whether the model is written to disk as well.
    """
    outcome, unit, times = run.design.outcome, "", np.zeros(0)
    if kept and isinstance(outcome, Survival) and "times" in (arrays := run.model.arrays()):
        unit = outcome.time_unit(dictionary)
        times = np.array(round_times(arrays["times"], unit))
    rows = [plain(row) for row in run.model.parameters(times)]
    rows = [row | ({"unit": unit} if unit and "time" in row else {}) for row in rows]
    return [*rows, *(_scaling(run) if kept else ())]


def _scaling(run: Run) -> Iterator[Row]:
    """Yield how each number becomes a covariate, where it is not taken as it is."""
    for c in run.design.columns:
        if not isinstance(c, NumberColumn):
            continue
        cut = [f"{word} {limit:.6g}" for word, limit in (("at least", c.low), ("at most", c.high))
               if limit is not None]  # fmt: skip
        limited = f"{c.name} is taken as {' and '.join(cut)}" if cut else ""
        if c.knots:
            how = f"the share of rows below it; model.json has its {len(c.knots)} knots"
        elif (c.shift, c.scale) != (0.0, 1.0):
            how = f"({c.name} − {c.shift:.6g}) / {c.scale:.6g}".replace("− -", "+ ")
            how += f", where {limited}" * bool(cut)
        elif cut:
            how = limited
        else:
            continue
        yield {"name": f"covariate {c.name}", "value": None, "note": how}
