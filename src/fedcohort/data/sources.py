"""Where tables come from: packaged samples, scikit-learn's bundled sets, CSV files.

sample:NAME          one of `SAMPLES`, with its dictionary and outcome
PATH.csv             one table
PATH/{site}.csv      one table a site, named by what stands in the place of {site}
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Outcome, Survival
from fedcohort.data.words import known_name, nearest
from fedcohort.protocol.errors import DataError


@dataclass(frozen=True)
class Source:
    """A study's table or tables.

    Attributes
    ----------
    frames : one table, or the sites' tables by name.
    name : as the study file gives it.
    description, licence : for reports; empty where unknown.
    dictionary, outcome : of samples; None where unknown.
    """

    frames: pd.DataFrame | dict[str, pd.DataFrame]
    name: str
    description: str = ""
    licence: str = ""
    dictionary: Dictionary | None = None
    outcome: Outcome | None = None


def load(source: str, base: Path) -> Source:
    """Read what a study calls its source.

    Parameters
    ----------
    source : see the header; relative paths start at `base`.

    Raises
    ------
    DataError : there is no such sample or file, or a file holds no table.
    """
    if source.startswith("sample:"):
        name = source.removeprefix("sample:")
        if name not in SAMPLES:
            raise DataError(f"{source}: there is {known_name('sample', name, SAMPLES)}")
        return SAMPLES[name]()
    if "{site}" in source:
        return Source(_by_site(base / source), source)
    return Source(read_csv(base / source), source)


def read_csv(path: Path) -> pd.DataFrame:
    """Read one table; empty cells are missing values.

    Raises
    ------
    DataError : no such file; or it is empty, not text, or its rows differ in length.
    """
    if not path.is_file():
        beside = (p.name for p in path.parent.glob("*") if p.is_file())
        raise DataError(f"there is no file {path}.{nearest(path.name, beside)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, index_col=False)
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty. Its first line must name the columns.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text. Save it as CSV in UTF-8.") from None
    except pd.errors.ParserWarning:
        raise DataError(f"{path} has rows with more cells than its header names.") from None
    except pd.errors.ParserError as error:
        line = re.search(r"line (\d+)", str(error))
        at = f", line {line.group(1)}," if line else ""
        raise DataError(
            f"{path}{at} does not fit the header. Check separators and quotes."
        ) from None
    frame.columns = [str(c).strip() for c in frame.columns]
    header = str(frame.columns[0])
    if frame.shape[1] == 1 and any(mark in header for mark in ";\t|"):
        raise DataError(
            f"{path} has one column, whose name holds a semicolon, tab or bar. Save it with commas "
            f"between the columns."
        )
    return frame


def _by_site(pattern: Path) -> dict[str, pd.DataFrame]:
    """Read the files that match a path with {site} in it, in the order of the sites' names."""
    text = pattern.as_posix()
    before, _, after = text.partition("{site}")
    folder = Path(before).parent if not before.endswith("/") else Path(before)
    shape = re.compile(re.escape(before) + "([^/]+)" + re.escape(after).replace(r"\*", "[^/]*"))
    depth = after.count("/")
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*/" * depth + "*")):
        match = shape.fullmatch(path.as_posix())
        if match is None or not path.is_file():
            continue
        if match.group(1) in found:
            raise DataError(f"{text}: two files match for site {match.group(1)!r}.")
        found[match.group(1)] = path
    if not found:
        raise DataError(f"{text}: no file matches, so there are no sites. Check folder and name.")
    return {site: read_csv(path) for site, path in sorted(found.items())}


def _gbsg2() -> Source:
    folder = resources.files("fedcohort.data") / "samples"
    with resources.as_file(folder / "gbsg2.csv") as path:
        frame = read_csv(path)
    spec = yaml.safe_load((folder / "gbsg2.yaml").read_text(encoding="utf-8"))
    dictionary = Dictionary.from_dict(spec, "gbsg2.yaml")
    return Source(
        frame,
        "sample:gbsg2",
        f"{dictionary.title}: {dictionary.description}",
        dictionary.licence,
        dictionary,
        Survival("time", "cens"),
    )


def _sklearn(name: str, description: str, licence: str, outcome: Outcome, **options: Any) -> Source:
    """Return one of scikit-learn's bundled sets; its target is the column "target"."""
    from sklearn import datasets

    frame = getattr(datasets, f"load_{name}")(as_frame=True, **options).frame
    dictionary = Dictionary.draft(frame, outcome)
    return Source(frame, f"sample:{name}", description, licence, dictionary, outcome)


def _breast_cancer() -> Source:
    about = "Wisconsin diagnostic breast cancer: 569 masses, 30 shape features; target 1 is benign."
    return _sklearn("breast_cancer", about, "CC BY 4.0 (UCI)", Binary("target"))


def _diabetes() -> Source:
    about = (
        "Diabetes progression: 442 patients, 10 features; the target is a score after one year "
        "(Efron et al. 2004)."
    )
    licence = "Distributed with scikit-learn (BSD-3-Clause)"
    return _sklearn("diabetes", about, licence, Continuous("target"), scaled=False)


def _digits() -> Source:
    about = "Handwritten digits: 1,797 images of 8 × 8 pixels; the target is the digit."
    return _sklearn("digits", about, "CC BY 4.0 (UCI)", Category("target"))


#: What `sample:` may be followed by.
SAMPLES: dict[str, Callable[[], Source]] = {
    "gbsg2": _gbsg2,
    "breast_cancer": _breast_cancer,
    "diabetes": _diabetes,
    "digits": _digits,
}
