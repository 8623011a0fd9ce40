"""A fitted model's parameters other than coefficients, as rows for people.

With f the linear predictor, b₀ + Σ coefficient × covariate plus any offset, a model is defined by
b₀, the coefficients, and the map from f to a prediction. Rows have the keys `name` and `value`, and
if available `standard_error`, `p`, `low`, `high`, and a `note` in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.wald import ratio_rows

#: How f becomes a prediction, by link.
PREDICTED = {
    "identity": "the predicted value is f",
    "log": "the predicted value is exp(f)",
    "sqrt": "the predicted value is f²",
    "inverse": "the predicted value is 1/f",
    "logit": "the probability is 1/(1 + exp(−f))",
    "probit": "the probability is Φ(f), of the standard normal distribution",
    "cloglog": "the probability is 1 − exp(−exp(f))",
}
#: What f is.
PREDICTOR = "f = intercept + sum of coefficient × covariate"


def intercept_row(
    value: float,
    standard_error: float | None,
    level: float,
    link: str,
    *,
    freedom: float = math.inf,
    offset: bool = False,
) -> dict[str, Any]:
    """Return the row of an intercept, whose note says how a prediction is made.

    Parameters
    ----------
    standard_error : None where there is none.
    level : coverage of the interval.
    freedom : degrees of freedom of Student's distribution; infinite for the normal.
    offset : whether the linear predictor has one.
    """
    row: dict[str, Any] = {"name": "intercept", "value": value}
    if standard_error is not None:
        estimate, error = np.array([value]), np.array([standard_error])
        tested = ratio_rows(["intercept"], estimate, error, level, "", freedom)[0]
        row |= {k: tested[k] for k in ("standard_error", "p", "low", "high")}
    return row | {"note": predicted(link, offset=offset)}


def predicted(link: str, *, offset: bool = False) -> str:
    """Return how a prediction is made, in one line without a full stop."""
    return f"{PREDICTOR}{' + offset' if offset else ''}; {PREDICTED[link]}"


def class_note(reference: str) -> str:
    """Return how the probability of each class is made, compared with the class `reference`."""
    return (
        f"{PREDICTOR}, for each class; the probability is exp(f)/(1 + sum of exp(f)), of "
        f"{reference} 1/(1 + sum of exp(f))"
    )


def class_rows(
    features: Sequence[str], classes: Sequence[str], beta: Array
) -> list[dict[str, Any]]:
    """Return one row for each class after the first and each covariate, without standard errors.

    Parameters
    ----------
    classes : (K,); the first is the reference.
    beta : β (K − 1, p), of the other classes less the reference.
    """
    return [
        {
            "covariate": name, "class": one, "reference": classes[0], "coefficient": b,
            "relative_risk_ratio": math.exp(min(b, 709.0)),
        }
        for one, row in zip(classes[1:], beta.tolist(), strict=True)
        for name, b in zip(features, row, strict=True)
    ]  # fmt: skip


def class_intercept_rows(classes: Sequence[str], values: Array) -> list[dict[str, Any]]:
    """Return the rows of the intercepts (K − 1,) of the classes after the first, the reference."""
    found = [
        {"name": f"intercept, {one}", "value": value}
        for one, value in zip(classes[1:], values.tolist(), strict=True)
    ]
    return [{**found[0], "note": class_note(classes[0])}, *found[1:]]


def chosen_row(penalty: float) -> dict[str, Any]:
    """Return the row of the penalty λ that ``penalty: auto`` took."""
    return {"name": "penalty", "value": penalty, "note": "chosen along a path"}
