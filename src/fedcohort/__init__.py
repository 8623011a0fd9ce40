"""Federated learning for clinical cohorts.

The names here carry a notebook user; each is loaded when it is first used, so that importing
the package costs nothing::

    import fedcohort as fc

    fed = fc.simulate(df, sites="hospital", outcome=fc.Survival("time", "event"))
    fit = fc.fit("cox", fed)
    study = fc.Study.from_file("study.yaml")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedcohort.version import VERSION

if TYPE_CHECKING:
    from fedcohort.data.outcome import Binary, Category, Continuous, Count, Ordered, Survival
    from fedcohort.protocol.errors import (
        DataError,
        FedcohortError,
        InputError,
        NotSupported,
        SettingError,
        SiteUnavailable,
        StudyError,
    )
    from fedcohort.study.api import Cohort, Fit, fit, load, simulate
    from fedcohort.study.study import Results, Study

__version__ = VERSION

_WHERE = {
    **dict.fromkeys(
        ("Binary", "Category", "Continuous", "Count", "Ordered", "Survival"),
        "fedcohort.data.outcome",
    ),
    **dict.fromkeys(
        (
            "DataError", "FedcohortError", "InputError", "NotSupported", "SettingError",
            "SiteUnavailable", "StudyError",
        ),
        "fedcohort.protocol.errors",
    ),
    **dict.fromkeys(("Cohort", "Fit", "fit", "load", "simulate"), "fedcohort.study.api"),
    **dict.fromkeys(("Results", "Study"), "fedcohort.study.study"),
}  # fmt: skip

__all__ = [
    "Binary",
    "Category",
    "Cohort",
    "Continuous",
    "Count",
    "DataError",
    "FedcohortError",
    "Fit",
    "InputError",
    "NotSupported",
    "Ordered",
    "Results",
    "SettingError",
    "SiteUnavailable",
    "Study",
    "StudyError",
    "Survival",
    "fit",
    "load",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'fedcohort' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
