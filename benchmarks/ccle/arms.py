"""The arms and their two sizes: the paper's networks, and small ones of a few columns.

Paper: Nolte et al., Bioinformatics Advances 3(1), 2023, with group normalisation in place of batch
normalisation (docs/refined.md). `ALONE` replaces settings where a client trains alone (section
3.1): the last convolution and all but one dense layer left out, of the ANN the first two layers;
batches of 12; a tenth of its own rows held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cohort import Columns

Settings = dict[str, Any]
#: Arms that see images. `drf-personal` has a last layer and leaves of each site's own (table 1).
IMAGES = ("cnn", "drf", "drf-shuffled", "cnn-shuffled")
#: Arms of the federated scope alone. `drf-halt` averages no models while R is above its level
#: (section 3.5); a halt goes with no rule of the common model's loss.
FEDERATED = ("drf-personal", "drf-halt")


@dataclass(frozen=True)
class Size:
    """Columns and settings.

    Attributes
    ----------
    common : of every network. arms : by name, with `method`.
    alone : by arm, in place of those, for a client alone.
    """

    columns: Columns
    common: Settings
    arms: dict[str, Settings]
    alone: dict[str, Settings]


def _networks(
    image: Settings, forest: Settings, dense: tuple[int, ...], ann: tuple[int, ...], cnn: int
) -> dict[str, Settings]:
    """Return the networks' arms; `dense` is of the forest, `cnn` of the network without one."""
    mapped = {**image, "refined": "coordinator", "dropout": 0.3}
    drf = {"method": "regression_forest", **mapped, **forest, "hidden": dense}
    return {
        "ann": {"method": "regressor", "hidden": ann},
        "cnn": {"method": "regressor", **mapped, "hidden": (cnn,)},
        "drf": drf,
        "drf-personal": {**drf, "personal": "fedper", "user": "all", "patience_by": "count"},
        "drf-halt": {
            **drf,
            "monitor": "validation",
            "halt": True,
            "patience": None,
            "lr_rule": "constant",
        },
        "drf-shuffled": drf,
        "cnn-shuffled": {"method": "regressor", **mapped, "hidden": (cnn,)},
        "boosting": {"method": "boosting", "rounds": 300, "max_depth": 4, "learning_rate": 0.1},
    }


def _alone(image: Settings, dense: int, ann: tuple[int, ...]) -> dict[str, Settings]:
    batches = {"batch_size": 12, "validation_fraction": 0.1}
    small = {**batches, "filters": image["filters"][:-1], "hidden": (dense,)}
    found = dict.fromkeys(IMAGES, small)
    return {**found, "ann": {**batches, "hidden": ann[2:]}, "boosting": {}}


_TRAINING: Settings = {
    "internal_epochs": 1, "batch_size": 32, "learning_rate": 0.001, "lr_rule": "plateau",
    "lr_patience": 4, "patience": 8,
}  # fmt: skip
_PAPER: Settings = {
    "filters": (8, 16, 24), "kernel": 5, "pool": 1, "padding": False, "normalise": "group",
    "joined": (16, 16, 16),
}  # fmt: skip
_SMALL: Settings = {
    "filters": (8, 16), "kernel": 3, "pool": 1, "padding": False, "normalise": "group",
    "joined": (8,),
}  # fmt: skip
_ANN, _SMALL_ANN = (1500, 1000, 600, 300, 100, 50), (256, 128, 64, 32)

SIZES = {
    "paper": Size(
        Columns(),
        {**_TRAINING, "rounds": 300, "dtype": "float32"},
        _networks(
            _PAPER,
            {"trees": 10, "depth": 7, "outputs": 150, "leaf_start": "normal", "leaf_rows": 0},
            (4000, 1000), _ANN, 128,
        ),
        _alone(_PAPER, 1000, _ANN),
    ),
    "small": Size(
        Columns(e=64, c=24, m=12, d=81),
        {**_TRAINING, "rounds": 20},
        _networks(
            _SMALL,
            {"trees": 5, "depth": 5, "outputs": 40, "leaf_iterations": 5},
            (64, 32), _SMALL_ANN, 32,
        ),
        _alone(_SMALL, 32, _SMALL_ANN),
    ),
}  # fmt: skip
