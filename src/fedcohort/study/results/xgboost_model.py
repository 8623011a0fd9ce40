"""An XGBoost model file of another program as a saved model, for predictions.

Every covariate is a column of numbers with the name that the file gives it; missing values stay.
The outcome follows from the objective, and has columns that no table needs. Without classes in the
file they are numbers from 0. `algorithms.boosting.xgboost_reader` says what is read.
"""

from __future__ import annotations

import stat
from pathlib import Path

from fedcohort.algorithms.boosting import BoostedModel, xgboost_reader
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Count, Outcome, Survival
from fedcohort.data.prepare import Design, NumberColumn
from fedcohort.protocol import DataError
from fedcohort.study.results.saved import Saved


def read(path: Path) -> Saved:
    """Return the model of a file.

    Raises
    ------
    DataError : no regular file, too large, or no XGBoost model in JSON.
    NotSupported : a booster, an objective or a kind of tree that is not read.
    """
    try:
        about = path.stat()
        regular = stat.S_ISREG(about.st_mode) and about.st_size <= xgboost_reader.LARGEST
        body = path.read_bytes() if regular else b""
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({type(error).__name__}).") from None
    if not regular:
        raise DataError(
            f"{path}: no file of up to {xgboost_reader.LARGEST:,} bytes. Give an XGBoost model in "
            f"JSON, or the folder of a saved model."
        )
    found = xgboost_reader.read(body, str(path))
    outcome = _outcome(found.objective.name, {*found.features})
    classes = ("0", "1") if isinstance(outcome, Binary) else ()
    if found.objective.several:
        classes = tuple(str(k) for k in range(len(found.ensemble.base)))
    model = BoostedModel(
        features=found.features, objective=found.objective, ensemble=found.ensemble, levels=classes
    )
    design = Design(
        columns=tuple(NumberColumn(name=f, type="number", fill=0.0) for f in found.features),
        outcome=outcome, classes=classes, impute="none", dropped={},
    )  # fmt: skip
    columns = {f: {"type": "number"} for f in found.features}
    dictionary = Dictionary.from_dict({"variables": columns}, str(path))
    notes = {"file": path.name}
    return Saved("boosting", model, design, dictionary, notes)


def _outcome(objective: str, taken: set[str]) -> Outcome:
    """Return the outcome of an objective, in columns that are not `taken`."""

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        return name

    if objective.startswith("survival:"):
        return Survival(free("time"), free("event"))
    kind = {
        "binary:logistic": Binary, "multi:softprob": Category, "count:poisson": Count,
    }.get(objective, Continuous)  # fmt: skip
    return kind(free("outcome"))
