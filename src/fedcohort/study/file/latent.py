"""What a study of latent coordinates may ask for: by which metrics, and what it cannot do.

Its outcome only judges, as that of clusters does. So metrics that look at it are there where the
file names classes, and those of imputation where a method imputes. Nothing is made of a survival
outcome yet: naming one keeps its columns out of all fits, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.data.outcome import Binary, Outcome
from fedcohort.protocol import registry
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.yamlfile import Document

#: All that latent coordinates are judged by; the first leads the report.
METRICS = (
    "reconstruction_mae", "imputation_mae", "imputation_rmse", "latent_accuracy", "latent_auc",
)  # fmt: skip
#: Those of a method that imputes.
OF_IMPUTERS = ("imputation_mae", "imputation_rmse")


def check(doc: Document, tune: Mapping[str, Any]) -> None:
    """Refuse what a study of latent coordinates cannot do.

    Raises
    ------
    StudyError : it would be tuned, by an outcome that no fit may see.
    """
    if tune:
        raise doc.error(
            ("tune",),
            "latent coordinates have no outcome to tune by. Give the settings, such as q, or list "
            "several arms; multiview_ppca chooses q itself (q: auto).",
        )


def metrics_of(outcome: Outcome | None, arms: tuple[Arm, ...], *, private: bool) -> tuple[str, ...]:
    """Return the metrics that outcome and methods have an answer to.

    In a private study nothing is told of training rows but by noisy fits; so no classes are told
    apart, since a discriminant is made of training rows.
    """
    gives = {what for arm in arms for what in registry.find(arm.method).gives}
    apart = set() if "impute" in gives else set(OF_IMPUTERS)
    told = not private
    apart |= set() if told and outcome is not None and outcome.has_classes else {"latent_accuracy"}
    apart |= set() if told and isinstance(outcome, Binary) else {"latent_auc"}
    return tuple(m for m in METRICS if m not in apart)
