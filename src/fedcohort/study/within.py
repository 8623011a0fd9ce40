"""How good settings are that are tried, by pairs of rows of one site and fold.

A network compares no rows of two sites (`deployed.holding`). Natural sites of one process are
scored by the same numbers, so that both choose the same settings.
"""

from __future__ import annotations

from fedcohort.arrays import Array
from fedcohort.data.outcome import Binary, Survival
from fedcohort.metrics import classification
from fedcohort.metrics.concordance import comparable_pairs


def sums(kind: str, said: Array, time: Array, event: Array, y: Array) -> tuple[float, float, float]:
    """Return right pairs, pairs, and squared errors among rows (n,) of one site and fold.

    Parameters
    ----------
    kind : of the outcome. said : the risk, the probability or the value that a model predicts.
    """
    if not len(said):
        return 0.0, 0.0, 0.0
    if kind == Survival.kind:
        found = comparable_pairs(said, time, event)
        return float((found.lower + 0.5 * found.tied).sum()), float(found.comparable.sum()), 0.0
    if kind == Binary.kind:
        pairs = float(y.sum() * (len(y) - y.sum()))
        return (float(classification.auc(y, said)) * pairs if pairs else 0.0), pairs, 0.0
    return 0.0, 0.0, float(((y - said) ** 2).sum())


def score(
    kind: str, right: float, pairs: float, squares: float, rows: float, y: float, yy: float
) -> float:
    """Return C-index, AUC or R² of sums over sites and folds; chance where no pair tells.

    Parameters
    ----------
    rows, y, yy : of all rows that are left out, their number, sum, and sum of squares.
    """
    if kind in (Survival.kind, Binary.kind):
        return right / pairs if pairs else 0.5
    spread = yy - y**2 / max(1.0, rows)
    return 1.0 - squares / spread if spread > 0 else 0.0
