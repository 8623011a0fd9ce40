"""Settings of `classifier` and `regressor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcohort.training.networks.net_settings import NetSettings


@dataclass(frozen=True, kw_only=True)
class NeuralSettings(NetSettings, method="classifier"):
    """Settings of a network of classes.

    Attributes
    ----------
    by_class : whether the last layer has a unit for each class.
    """

    by_class: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class RegressorSettings(NeuralSettings, method="regressor"):
    """The same for a value or a count."""

    by_class = False
