"""A multivariate normal distribution of columns with missing entries."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.joint_normal.model import JointNormalModel
from fedcohort.algorithms.joint_normal.program import fit
from fedcohort.algorithms.joint_normal.settings import JointNormalSettings
from fedcohort.algorithms.joint_normal.steps import STEPS
from fedcohort.protocol import Method, Task


def bounds(config: JointNormalSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`): none is a whole number or text."""
    return {}


METHOD = Method(
    name="joint_normal",
    title="multivariate normal of all columns (EM): missing values by their mean, or drawn",
    tasks=("latent", "imputation"),
    paper="Dempster, Laird, Rubin, JRSS B 39, 1977; Schafer, 1997 (data augmentation)",
    reveals=(
        "Only sums over all sites: once, over several, how many records differ in each column, and "
        "how far; once the number of rows; then, in each round, totals and products of all "
        "columns, with missing values as expected from the others, or as drawn at the sites."
    ),
    unguarded=(
        "Columns that single out few records are refused, with missing entries at their public "
        "point (`data.imputing.disclosure`)."
    ),
    settings=JointNormalSettings,
    fit=fit,
    model=JointNormalModel,
    steps=STEPS,
    bounds=bounds,
    preprocess={"scale": "standard", "impute": "none"},
)

__all__ = ["METHOD", "JointNormalModel", "JointNormalSettings"]
