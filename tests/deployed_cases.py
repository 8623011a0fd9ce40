"""Deployed studies over sites in this process, for the tests that need one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.data import sources
from fedcohort.study.deployed import LocalSites, SiteTable, Terms, run

NAMES = ("bergen", "oslo", "tromsø")
STUDY = """\
study: net
data: {{source: 'sample:{sample}'}}
arms: {arms}
bounds: {bounds}
evaluate: {{repeats: {repeats}}}
"""
SECONDS = re.compile(r'("seconds": )[0-9.]+')


def terms_of(folder: Path, sample: str, arms: str, repeats: int = 1, **more: Any) -> Terms:
    folder.mkdir(parents=True, exist_ok=True)
    bounds = more.pop("bounds", "[isolated, centralised]")
    text = STUDY.format(sample=sample, arms=arms, repeats=repeats, bounds=bounds)
    text += "".join(f"{k}: {v}\n" for k, v in more.items())
    (folder / "s.yaml").write_text(text)
    return Terms.of(folder / "s.yaml")


def frames_of(sample: str, seed: int = 0, names: tuple[str, ...] = NAMES) -> dict[str, Any]:
    frame = sources.load(f"sample:{sample}", Path()).frames
    where = np.random.default_rng(seed).integers(0, len(names), len(frame))
    return {n: frame[where == i].reset_index(drop=True) for i, n in enumerate(names)}


def tables_of(terms: Terms, frames: dict[str, pd.DataFrame]) -> list[SiteTable]:
    return [SiteTable.of(terms, name, frame) for name, frame in frames.items()]


def run_local(terms: Terms, tables: list[SiteTable], out: Path, **more: Any) -> dict[str, Any]:
    resume = more.pop("resume", False)
    tell = more.pop("tell", None)
    sites = LocalSites(terms, tables, states=out.parent / f"{out.name}-states", **more)
    return run(terms, sites, out, resume=resume, tell=tell, debug=True)


def files_of(out: Path) -> dict[str, bytes]:
    """Return every file of a run, with the seconds struck out of the text."""
    found = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        blob = path.read_bytes()
        if path.suffix == ".json":
            blob = SECONDS.sub(r"\g<1>0", blob.decode()).encode()
        found[str(path.relative_to(out))] = blob
    return found


def results_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())
