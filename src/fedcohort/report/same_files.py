"""Which files of two runs are equal, and why others differ."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcohort.report import words
from fedcohort.report.run import Run

#: What is not compared: it follows from the other files.
_PAGES = ("report.html", "compare.html")
#: Keys of results.json that no two runs share.
_OWN = ("seconds", "command")
#: The files of a model besides its card.
_MODEL = ("model.json", "model.safetensors")
EQUAL, OTHER, ONE = "equal", "differs", "in one run"


@dataclass(frozen=True)
class FileLine:
    """A file, or the files of a model, in two runs: "equal", "differs" or "in one run", and why."""

    name: str
    state: str
    why: str = ""


def compared(first: Run, other: Run) -> list[FileLine]:
    """Return every file of two runs that judged the same patients, models first."""
    here, there = _files(first.folder), _files(other.folder)
    names = sorted({*here, *there}, key=lambda n: (not n.startswith("models/"), n))
    models = dict.fromkeys(n.rpartition("/")[0] for n in names if n.endswith("/model.json"))
    lines = [_model(first, other, folder) for folder in models]
    for name in (n for n in names if n.rpartition("/")[2] not in _MODEL):
        if name not in here or name not in there:
            lines.append(FileLine(name, ONE, _one(name, first, other)))
        elif _bytes(here[name]) == _bytes(there[name]):
            lines.append(FileLine(name, EQUAL))
        else:
            lines.append(_differing(name, first, other))
    return lines


def said(lines: list[FileLine]) -> list[str]:
    """Return the lines in words, files of one state and reason together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        groups.setdefault((line.state, line.why), []).append(line.name)
    order = {EQUAL: 0, OTHER: 1, ONE: 2}
    found = sorted(groups.items(), key=lambda item: order[item[0][0]])
    return [
        f"{state}: {', '.join(names)}" + (f" ({why})" if why else "")
        for (state, why), names in found
    ]


def _files(folder: Path) -> dict[str, Path]:
    found = (p for p in sorted(folder.rglob("*")) if p.is_file())
    named = {p.relative_to(folder).as_posix(): p for p in found}
    return {n: p for n, p in named.items() if n not in _PAGES and not n.startswith(("audit", "."))}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# models -------------------------------------------------------------------------------


def _model(first: Run, other: Run, folder: str) -> FileLine:
    """Compare the two files of a model."""
    ours, theirs = ([run.folder / folder / name for name in _MODEL] for run in (first, other))
    if not all(p.exists() for p in (*ours, *theirs)):
        return FileLine(folder, ONE, _one(folder, first, other))
    json_same, same = (_bytes(a) == _bytes(b) for a, b in zip(ours, theirs, strict=True))
    if json_same and same:
        return FileLine(folder, EQUAL, "byte for byte")
    if same:
        keys = _keys_that_differ(ours[0], theirs[0])
        return FileLine(folder, OTHER, f"its arrays are equal; model.json differs in {keys}")
    return FileLine(folder, OTHER, _why_models_differ(first, other))


def _keys_that_differ(one: Path, other: Path) -> str:
    a, b = _json(one), _json(other)
    return words.listed([k for k in dict.fromkeys((*a, *b)) if a.get(k) != b.get(k)] or ["form"])


def _why_models_differ(first: Run, other: Run) -> str:
    """Return known reasons for different models of the same rows."""
    why: list[str] = []
    if _asked(first) != _asked(other):
        why.append("the study files ask for other models")
    if first.mapping("privacy").get("dp") or other.mapping("privacy").get("dp"):
        why.append("the noise of each run is its own")
    if any(run.rows("missing") for run in (first, other)):
        why.append("sites were missing from some calls")
    if _arithmetic(first) != _arithmetic(other):
        why.append("other versions or another kind of processor computed them")
    return " and ".join(why) or "for no reason that the files show"


def _asked(run: Run) -> tuple[Any, ...]:
    """Return the declarations that determine a model."""
    arms = {str(d["arm"]): (d.get("method"), d.get("settings")) for d in run.rows("declared")
            if d.get("role") == "arm"}  # fmt: skip
    return run.results.get("seed"), arms, run.mapping("preprocess")


def _arithmetic(run: Run) -> Any:
    found = _json(run.folder / "environment.json")
    return found.get("versions"), found.get("arithmetic")


# other files --------------------------------------------------------------------------


def _differing(name: str, first: Run, other: Run) -> FileLine:
    """Return why a file that both runs have differs; "equal" where only names and times do."""
    network = first.deployed != other.deployed
    base = name.rpartition("/")[2]
    if base == "history.csv" and _rows(first) == _rows(other):
        return FileLine(name, EQUAL, "but for the name of the setting")
    if base == "results.json" and _plain(first) == _plain(other):
        return FileLine(name, EQUAL, "but for times and the command")
    reasons: Mapping[str, Callable[[], str]] = {
        "study.yaml": lambda: "the differences of the studies stand above",
        "environment.json": lambda: "another computer, or other versions",
        "ledger.jsonl": lambda: (
            "over a network replies of counting and judging leave the sites as well"
            if network
            else "other replies left the sites"
        ),
        "history.csv": lambda: "the fits differ",
    }
    if base in reasons:
        return FileLine(name, OTHER, reasons[base]())
    if network:
        return FileLine(
            name, OTHER,
            "a network forms metrics from sums over hospitals, and lacks the parts in left_out "
            "of results.json",
        )  # fmt: skip
    return FileLine(name, OTHER, "the models, or how they are judged, differ")


def _one(name: str, first: Run, other: Run) -> str:
    """Return why one run alone has a file."""
    if name == "dictionary.yaml" and first.deployed != other.deployed:
        return "it travels with a study over a network"
    return "the other run has no such arm or file"


def _rows(run: Run) -> list[list[str]]:
    """Return history.csv without the name of its only setting."""
    text = _bytes(run.folder / "history.csv").decode(errors="replace")
    rows = list(csv.reader(text.splitlines()))
    single = len(run.scenarios) == 1 and rows and "scenario" in rows[0]
    place = rows[0].index("scenario") if single else -1
    return [[c for i, c in enumerate(row) if i != place] for row in rows]


def _plain(run: Run) -> Any:
    """Return results.json without the keys that no two runs share."""

    def kept(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {k: kept(v) for k, v in part.items() if k not in _OWN}
        return [kept(v) for v in part] if isinstance(part, list) else part

    return kept(run.results)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
