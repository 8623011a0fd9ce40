"""Strings of patients, planted in what studies read, are in nothing that leaves or is written.

    python benchmarks/scorecard/planted_strings.py

Strings that stand nowhere else are put into tables (free text, identifiers, among numbers, as
levels, as names of columns), sources, queries, paths, and a site's own dictionary:

node      one hospital's node and 18 kinds of failures while its table is opened and calls come
network   three hospitals and a coordinator, in one process over sealed channels: a study that works
          (Cox regression, federated averaging), and three in which one hospital's table fails
alone     `fedcohort run` and `fedcohort data check` as commands, on tables that work and that fail

Searched, in any case, as UTF-8 and UTF-16: every message before it is sealed; the coordinator's and
the lead's folders (results, report, journals, ledgers); each node's state (log, ledger, desk, and
the answers that it keeps for itself); what the commands print, and the run's folder. A node's table
is the one place where they may be. A failure that does not happen as it is meant to, or a study
that should work and does not, fails the row: nothing would have been searched. Names of columns and
levels that a lead's study or the study's dictionary names are its own words, which all sites are
shown, and are not planted.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import pandas as pd
import yaml
from sheet import main

from fedcohort.network.coordinator.lead import fetch, open_folder, submit
from fedcohort.network.node.node import Node
from hospital import Hospital
from network.hall import Hall
from network.parties import SAMPLES, SITES, shares
from network.test_planted import FAILING, Plants

ITEM = "planted patient strings: 1000"
TARGET = "0 found in messages, logs, errors, reports, journals"
LEAST = 1000

Places = dict[str, bytes]


def files(*folders: Path, but: tuple[str, ...] = ()) -> Places:
    """Return all files below some folders, and the names of all, but those of some names."""
    found = [
        p for folder in folders for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name not in but
    ]  # fmt: skip
    names = "\n".join(str(p) for folder in folders for p in folder.rglob("*") if p.name not in but)
    return {"names of files": names.encode()} | {str(p): p.read_bytes() for p in found}


def search(places: Mapping[str, bytes], plants: Plants) -> list[str]:
    """Return where planted strings are."""
    found = list[str]()
    for name, blob in places.items():
        low = blob.lower()
        for code in ("utf-8", "utf-16-le", "utf-16-be"):
            if "doe".encode(code) in low:
                found += [f"{t} in {name}" for t in plants.all if t.lower().encode(code) in low]
    return found


# a node -----------------------------------------------------------------------------------


def node(plants: Plants, folder: Path) -> Iterator[Places]:
    """Let a node fail in every way; yield all that left and all that it keeps."""
    for case in FAILING:
        place = folder / case.__name__
        place.mkdir()
        made = Hospital(place)
        signed = made.signed()
        for code in case(made, plants):
            told = made.offered(signed)
            codes = (code,) if isinstance(code, str) else code
            if codes is not None and not (told["state"] == "refused" and told["code"] in codes):
                raise AssertionError(f"{case.__name__}: expected a failure, {codes}: {told}")
            made.call(signed.hash)
        made.node.close()
        yield files(made.state) | {f"message {i}": blob for i, blob in enumerate(made.sent)}


# a network --------------------------------------------------------------------------------


def planted(frame: pd.DataFrame, plants: Plants) -> pd.DataFrame:
    """Return a table that fits, with planted columns beside the study's."""
    n = len(frame)
    extra = {"name": plants.some(n), "note": plants.some(n), plants.one(): plants.some(n)}
    return frame.assign(**extra, ward=plants.one())


def broken(frame: pd.DataFrame, plants: Plants, how: str) -> str:
    """Return a table that cannot be read or does not fit, as text."""
    if how == "numbers":
        frame = frame.astype({"age": object})
        frame.loc[frame.index[:9], "age"] = plants.some(9)
    elif how == "levels":
        frame = frame.astype({"tgrade": object})
        frame.loc[frame.index[:9], "tgrade"] = plants.some(9)
    rows = frame.to_csv(index=False).splitlines()
    if how == "rows":
        rows[5:5] = ['"{}"{},{}\0'.format(*plants.some(3)), ",".join(plants.some(30))]
    return "\n".join(rows)


WORKS: dict[str, Any] = {
    "arms": [{"method": "cox"}, {"method": "deepcox", "rounds": 2, "hidden": [4]}],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
    "bounds": ["isolated"],
}
#: What is said of each failure: what does not fit, and never which value.
REASONS = {"numbers": "'number'", "levels": "'levels'", "rows": "cannot be read"}
PRINTED = {"numbers": "no number", "levels": "has a level outside", "rows": "does not fit the head"}
PATIENCE: dict[str, Any] = {"wait": 5.0, "timeout": 60.0, "resume": False}


def network(plants: Plants, folder: Path) -> Places:
    """Run studies over three nodes; return everything that is outside their tables."""
    wire: Places = {}
    handle = Node.handle

    def heard(self: Node, peer: Any, body: bytes) -> bytes:
        reply = handle(self, peer, body)
        wire[f"request {len(wire)}"], wire[f"reply {len(wire)}"] = body, reply
        return reply

    printed = io.StringIO()
    Node.handle = heard  # type: ignore[method-assign]
    try:
        with redirect_stdout(printed), redirect_stderr(printed), Hall(folder) as hall:
            for name, table in shares(SITES).items():
                planted(table, plants).to_csv(folder / name / "patients.csv", index=False)
            hall.start()
            office = hall.office()
            first = submit(office, hall.offer(**WORKS), **PATIENCE)
            hall.until(office, first, "done", 120)
            open_folder(folder / "out", first.run, office.kit, resume=False)
            fetch(office, first.run, folder / "out")
            for i, how in enumerate(("numbers", "levels", "rows")):
                frame = shares(SITES)["south"]
                (folder / "south" / "patients.csv").write_text(broken(frame, plants, how))
                run = submit(office, hall.offer(**WORKS, seed=i), **PATIENCE)
                end = hall.until(office, run, "refused", 60)
                if "site 'south'" not in end.reason or not re.search(REASONS[how], end.reason):
                    raise AssertionError(f"another failure than {how}: {end.reason}")
            said = "\n".join(hall.said)
    finally:
        Node.handle = handle  # type: ignore[method-assign]
    arms = json.loads((folder / "out" / "results.json").read_text())["arms"]
    if len(wire) < 100 or not arms or any(arm["status"] != "done" for arm in arms):
        raise AssertionError("the study that works did not, or its messages were not heard")
    return {
        **wire, "said": said.encode(), "printed": printed.getvalue().encode(),
        **files(folder / "net", folder / "out", *folder.glob("net/*/runs")),
    }  # fmt: skip


# alone ------------------------------------------------------------------------------------


def command(*words: str | Path, folder: Path) -> bytes:
    """Return what a command of fedcohort prints, however it ends."""
    code = "import sys; from fedcohort.apps.cli import main; sys.exit(main())"
    given = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(
        given, cwd=folder, capture_output=True, timeout=400, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"},
    )  # fmt: skip
    if not done.stdout + done.stderr:
        raise AssertionError("a command printed nothing")
    return done.stdout + done.stderr


def alone(plants: Plants, folder: Path) -> Places:
    """Run commands on tables in one process; return what they print and write."""
    table = pd.read_csv(SAMPLES / "gbsg2.csv")
    (folder / "dictionary.yaml").write_text((SAMPLES / "gbsg2.yaml").read_text())
    found: Places = {}
    tables = {"works": planted(table, plants).to_csv(index=False)}
    tables |= {how: broken(table, plants, how) for how in ("numbers", "levels", "rows")}
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)
        study = {
            "study": name, "task": "survival", "seed": 3,
            "data": {"source": f"{name}.csv", "dictionary": "dictionary.yaml",
                     "outcome": {"time": "time", "event": "cens"},
                     "sites": {"split": "iid", "n": 3}},
            **WORKS,
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(study))
        found[f"run of {name}"] = command("run", f"{name}.yaml", folder=folder)
        if name != "works":
            check = ("data", "check", f"{name}.csv", "--dictionary", "dictionary.yaml")
            found[f"check of {name}"] = command(*check, folder=folder)
            if PRINTED[name] not in found[f"run of {name}"].decode():
                raise AssertionError(f"another failure than {name}: {found[f'run of {name}']!r}")
    if not list(folder.glob("runs/**/results.json")):
        raise AssertionError(f"the study that works has no results: {found['run of works']!r}")
    return found | files(folder / "runs")


# measuring --------------------------------------------------------------------------------


def measure() -> tuple[str, bool]:
    """Plant, run, search; say what was found."""
    logging.disable(logging.NOTSET)
    plants, found, searched, n = Plants(), list[str](), 0, 0
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        for part in ("node", "network", "alone"):
            (base / part).mkdir()
        runs = [*node(plants, base / "node"), network(plants, base / "network")]
        runs.append(alone(plants, base / "alone"))
        for places in runs:
            found += search(places, plants)
            searched += sum(map(len, places.values()))
            n += len(places)
    for line in found[:20]:
        print(line)
    text = (
        f"{len(plants.all):,} planted in {len(FAILING)} kinds of failures at a node, 4 studies "
        f"over a network and 4 in one process; {len(found)} found in {n:,} messages, files and "
        f"outputs ({searched / 1e6:.0f} MB)"
    )
    return text, len(plants.all) >= LEAST and not found


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
