"""Sources of tables: samples, CSV and Parquet files, databases, and memory.

sample:NAME                    one of `SAMPLES`, with its dictionary and outcome
PATH.csv, PATH.csv.gz          one table; PATH.parquet likewise
PATH/{site}.csv                one table per site; the text in place of {site} is its name
DIALECT://…                    the rows of a query to a database (`sql`)
memory, memory:{site}          frames that Python gives (`in_memory`)

The same records give the same table from each source (`canonical`). Nothing is revealed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, cast

import pandas as pd
import yaml

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Outcome, Survival
from fedcohort.data.read.canonical import canonical, plain
from fedcohort.data.read.csvfile import read_csv
from fedcohort.data.read.drafting import draft
from fedcohort.data.read.frames import as_pandas, read_parquet
from fedcohort.data.read.simulated_views import dictionary_of, multiview
from fedcohort.data.read.sql import database_file, is_url, read_sql
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError

__all__ = ["SAMPLES", "Source", "load", "read_csv"]


#: Endings of the names of table files.
TABLES = (
    ".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".xls", ".xlsx", ".ods",
)  # fmt: skip
#: Source of a study whose tables Python gives: one table, or one per site.
MEMORY, MEMORY_BY_SITE = "memory", "memory:{site}"


@dataclass(frozen=True)
class Source:
    """A study's table or tables.

    Attributes
    ----------
    frames : one table, or the sites' tables by name.
    name : as the study file gives it.
    description, licence : for reports; empty if unknown.
    dictionary, outcome : of samples; None if unknown.
    """

    frames: pd.DataFrame | dict[str, pd.DataFrame]
    name: str
    description: str = ""
    licence: str = ""
    dictionary: Dictionary | None = None
    outcome: Outcome | None = None


def load(
    source: str,
    base: Path,
    *,
    query: str = "",
    dictionary: Dictionary | None = None,
    texts: Collection[str] = (),
) -> Source:
    """Read the tables of a study's source.

    Parameters
    ----------
    source : see the header; relative paths start at `base`.
    query : SQL query for a database.
    dictionary : determines the form of the columns, in place of a sample's own dictionary. Without
        one, the cells do.
    texts : columns to read as text, such as that of the site.

    Raises
    ------
    DataError : there is no such sample, file or database, it holds no table, or two columns have
        one name.
    """
    if source in (MEMORY, MEMORY_BY_SITE):
        raise DataError(
            f"the source is {source!r}: give the table in Python, as "
            f"Study.from_file(..., data=...); or name a file."
        )
    return _formed(_load(source, base, query, dictionary, texts), dictionary)


def in_memory(data: Any, dictionary: Dictionary | None = None) -> Source:
    """Return a table in memory, or a mapping from site names to tables, as a source.

    Parameters
    ----------
    data : pandas or Polars frames, or pyarrow tables.

    Raises
    ------
    DataError : the data is no table, or two columns have one name.
    """
    if not isinstance(data, Mapping):
        return _formed(Source(as_pandas(data), MEMORY), dictionary)
    named = cast("Mapping[Any, Any]", data)
    frames = {str(name): as_pandas(frame) for name, frame in named.items()}
    return _formed(Source(frames, MEMORY_BY_SITE), dictionary)


def files_of(source: str, base: Path) -> list[Path]:
    """Return the files that a source reads, if any."""
    if is_url(source):
        name = database_file(source)
        return [] if name is None else [base / name]
    before, site, after = (base / source).as_posix().partition("{site}")
    folder = Path(before) if before.endswith("/") else Path(before).parent
    return list(_matching(before, after, folder)) if site else [base / source]


def by_site(source: str, base: Path) -> dict[str, Path]:
    """Return the files that match a path with {site}, by site.

    Raises
    ------
    DataError : two files belong to one site.
    """
    text = (base / source).as_posix()
    before, _, after = text.partition("{site}")
    folder = Path(before) if before.endswith("/") else Path(before).parent
    found: dict[str, Path] = {}
    for path, site in _matching(before, after, folder).items():
        if site in found:
            raise DataError(f"{text}: two files match for site {site!r}.")
        found[site] = path
    return dict(sorted(found.items()))


def name_of(source: str, base: Path, site: str) -> str:
    """Return the file of one site, in the form of its source with {site}."""
    name = source.replace("{site}", site)
    if "*" not in source:
        return name
    before, _, after = (base / source).as_posix().partition("{site}")
    folder = Path(before) if before.endswith("/") else Path(before).parent
    found = (path for path, s in _matching(before, after, folder).items() if s == site)
    path = next(found, None)
    if path is None:
        return name
    return (path if Path(source).is_absolute() else path.relative_to(base)).as_posix()


def beside(source: str, base: Path) -> list[str]:
    """Return the names of table files in the folders of a path with {site} that do not match it."""
    if is_url(source) or "{site}" not in source:
        return []
    read = files_of(source, base)
    folders = {path.parent for path in read}
    others = (p for folder in sorted(folders) for p in sorted(folder.iterdir()) if p not in read)
    return [p.name for p in others if p.is_file() and p.name.lower().endswith(TABLES)]


def _formed(found: Source, dictionary: Dictionary | None) -> Source:
    """Return a source with its columns in form, from a dictionary or from their cells."""
    known = dictionary or found.dictionary

    def form(frame: pd.DataFrame) -> pd.DataFrame:
        formed = plain(frame) if known is None else canonical(frame, known)
        _require_unique_names(formed, found.name, known)
        return formed

    if isinstance(found.frames, pd.DataFrame):
        return replace(found, frames=form(found.frames))
    frames = found.frames
    return replace(found, frames={site: form(frames.pop(site)) for site in list(frames)})


def _require_unique_names(frame: pd.DataFrame, name: str, known: Dictionary | None) -> None:
    """Check that column names are unique; a repeated name of the dictionary is left to the checks.

    The message repeats no name: without a header line, the first patient stands in its place.
    """
    if known is not None and not any(column in known for column in frame.columns):
        return
    first: dict[Any, int] = {}
    for i, column in enumerate(frame.columns, 1):
        if first.setdefault(column, i) < i and (known is None or column not in known):
            raise DataError(
                f"{name}: columns {first[column]} and {i} have the same name; rename or drop one."
            )


def _load(
    source: str, base: Path, query: str, dictionary: Dictionary | None, texts: Collection[str]
) -> Source:
    if source.startswith("sample:"):
        name = source.removeprefix("sample:")
        if name not in SAMPLES:
            raise DataError(f"{source}: there is {known_name('sample', name, SAMPLES)}")
        return SAMPLES[name]()
    if is_url(source):
        return Source(read_sql(source, query, base, dictionary, texts), source)
    if "{site}" in source:
        return Source(_by_site(base / source, dictionary, texts), source)
    return Source(_read(base / source, dictionary, texts), source)


def _read(path: Path, dictionary: Dictionary | None, texts: Collection[str]) -> pd.DataFrame:
    if path.suffix.lower() in (".parquet", ".pq"):
        return read_parquet(path, dictionary, texts)
    return read_csv(path, dictionary, texts)


def _by_site(
    pattern: Path, dictionary: Dictionary | None, texts: Collection[str]
) -> dict[str, pd.DataFrame]:
    """Read the files that match a path with {site}, sorted by site."""
    found = by_site(pattern.as_posix(), Path())
    if not found:
        raise DataError(
            f"{pattern.as_posix()}: no file matches, so there are no sites. Check folder and name."
        )
    return {site: _read(path, dictionary, texts) for site, path in found.items()}


def _matching(before: str, after: str, folder: Path) -> dict[Path, str]:
    """Return the files in `folder` whose path is `before`, a site's name, and `after`."""
    shape = re.compile(re.escape(before) + "([^/]+)" + re.escape(after).replace(r"\*", "[^/]*"))
    paths = sorted(folder.glob("*/" * after.count("/") + "*"))
    found = ((path, shape.fullmatch(path.as_posix())) for path in paths if path.is_file())
    return {path: match.group(1) for path, match in found if match is not None}


_SAMPLES = resources.files("fedcohort.data") / "samples"


def _gbsg2() -> Source:
    with resources.as_file(_SAMPLES / "gbsg2.csv") as path:
        return _described("gbsg2", read_csv(path))


def _described(name: str, frame: pd.DataFrame) -> Source:
    spec = yaml.safe_load((_SAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    known = Dictionary.from_dict(spec, f"{name}.yaml")
    about = f"{known.title}: {known.description}"
    return Source(frame, f"sample:{name}", about, known.licence, known, OUTCOMES[name])


def _sklearn(name: str, description: str, licence: str) -> Source:
    from sklearn import datasets

    outcome = OUTCOMES[name]
    frame = getattr(datasets, f"load_{name}")(as_frame=True).frame
    dictionary = draft(frame, outcome)
    return Source(frame, f"sample:{name}", description, licence, dictionary, outcome)


def _breast_cancer() -> Source:
    about = "Wisconsin diagnostic breast cancer: 569 masses, 30 shape features; target 1 is benign."
    return _sklearn("breast_cancer", about, "CC BY 4.0 (UCI)")


def _diabetes() -> Source:
    from sklearn import datasets

    found: Any = datasets.load_diabetes(as_frame=True, scaled=False)
    return _described("diabetes", found.frame)


def _digits() -> Source:
    about = "Handwritten digits: 1,797 images of 8 × 8 pixels; the target is the digit."
    return _sklearn("digits", about, "CC BY 4.0 (UCI)")


def _multiview() -> Source:
    frame, views = multiview()
    known = dictionary_of(views)
    about = f"{known.title}: {known.description}"
    return Source(frame, "sample:multiview", about, known.licence, known)


#: Outcomes of samples by name.
OUTCOMES: dict[str, Outcome] = {
    "gbsg2": Survival("time", "cens"),
    "breast_cancer": Binary("target"),
    "diabetes": Continuous("target"),
    "digits": Category("target"),
}
#: Samples by name.
SAMPLES: dict[str, Callable[[], Source]] = {
    "gbsg2": _gbsg2,
    "breast_cancer": _breast_cancer,
    "diabetes": _diabetes,
    "digits": _digits,
    "multiview": _multiview,
}
