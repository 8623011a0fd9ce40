"""What a network's results lack beside those of one process, and why: `left_out` of results.json.

A part is named by its key in results.json, or by the metric; `title` is what the report calls it.
"""

from __future__ import annotations

from typing import Any

from fedcohort.data.outcome import Binary, Category, Outcome, Survival
from fedcohort.study.deployed.terms import CLUSTERING, LATENT, Terms
from fedcohort.study.judges.latent import OF_CLASSES
from fedcohort.study.plan import Plan

#: By part: what the report calls it, and why it is absent.
PARTS: dict[str, tuple[str, str]] = {
    "importance": (
        "Importance",
        "A column is shuffled over the patients of all hospitals, whose rows would have to meet.",
    ),
    "calibration": (
        "Calibration by group",
        "Groups of predicted values begin and end at those of single patients. The slope and the "
        "intercept are told (calibration_slope, calibration_intercept).",
    ),
    "residuals": (
        "Residuals",
        "Quartiles of what was seen less predicted are values of single patients. Their mean size "
        "is told (rmse, mae).",
    ),
    "silhouette": (
        "Silhouette",
        "It compares all pairs of patients, whose rows would have to meet; simplified_silhouette "
        "stands for it.",
    ),
    "agreement": (
        "Agreement with pooled data",
        "It compares with the groups of one table that holds all rows.",
    ),
    "at_risk": (
        "Numbers at risk by cluster",
        "Deaths and censorings are counted in intervals of time that hold several deaths, and not "
        "at round times.",
    ),
    "latent_filled": (
        "Filled in",
        "It sets true beside imputed values of patients of all hospitals, whose rows would have to "
        "meet.",
    ),
    "latent_map": (
        "Latent space",
        "It places the patients of all hospitals on one map, which takes their rows in one place.",
    ),
    "latent_accuracy": (
        "Classes told from latent coordinates",
        "A discriminant takes sums of training rows by class, a second set beside those of the "
        "fit.",
    ),
    "draws": (
        "Intervals over patients",
        "The seed of a study is public, so that sums of one metric at known weights of the "
        "patients could be solved for single patients. Intervals are over the repeats; there are "
        "none of fewer than three.",
    ),
    "seconds": (
        "Footprint of each hospital",
        "A site does not tell how long it computed.",
    ),
}  # fmt: skip


def parts_of(plan: Plan, outcome: Outcome | None) -> list[str]:
    """Return the parts that a study in one process would have and a network does not give."""
    if plan.task == CLUSTERING:
        pooled = any(arm.scope == "centralised" for arm in plan.arms)
        curves = isinstance(outcome, Survival)
        found = ["silhouette", *["agreement"] * pooled, *["at_risk"] * curves]
    elif plan.task == LATENT:
        classes = any(m in OF_CLASSES for m in plan.metrics)
        found = ["latent_filled", "latent_map", *["latent_accuracy"] * classes]
    elif isinstance(outcome, (Survival, Binary, Category)):
        found = ["importance"]
    else:
        found = ["calibration", "residuals", "importance"]
    return [*found, "draws", "seconds"]


def left_out(terms: Terms) -> list[dict[str, Any]]:
    """Return what a network's results lack: arms of the study file, then parts of the results."""
    arms = [vars(arm) for arm in terms.left_out]
    parts = parts_of(terms.asked, terms.outcome)
    return arms + [
        {"part": part, "title": PARTS[part][0], "reason": PARTS[part][1]} for part in parts
    ]
