"""Studies of latent coordinates over sites in this process, of which some lack a view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from deployed_cases import results_of, run_local, tables_of
from fedcohort.data.read.simulated_views import dictionary_of, multiview
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.pooled.latent import Latent
from fedcohort.study.results import saved
from fedcohort.study.run.engine import Problem

NAMES = ("bergen", "oslo", "tromsø")
#: 360 patients; 9 numbers in three views.
FRAME, VIEWS = multiview(360, (4, 3, 2), 2, 100, noise=(0.3, 0.3), distance=2.0)
PPCA = {"method": "multiview_ppca", "q": 2, "rounds": 2, "draws": 10, "compare": True}
SMALL = {"q": 2, "rounds": 1, "internal_epochs": 3}
ARMS = [PPCA, {"method": "vae", **SMALL}, {"method": "mcvae", **SMALL}]


def shares(lacks: str = "v3", alone: int = 0) -> dict[str, pd.DataFrame]:
    """Return the rows of each hospital; Tromsø lacks a view, and some of Oslo's have one alone.

    Some entries are missing besides.
    """
    found = {n: FRAME[i::3].reset_index(drop=True) for i, n in enumerate(NAMES)}
    found["bergen"].loc[::7, "v1_02"] = float("nan")
    found["oslo"].loc[3::11, VIEWS["v2"]] = float("nan")
    found["oslo"].loc[: alone - 1, [*VIEWS["v2"], *VIEWS["v3"]]] = float("nan")
    found["tromsø"] = found["tromsø"].drop(columns=VIEWS[lacks] if lacks else [])
    return found


def content(**more: Any) -> dict[str, Any]:
    """Return a study file's content."""
    return {
        "study": "net", "task": "latent", "data": {"source": "t.csv", "dictionary": "d.yaml"},
        "arms": ARMS, "bounds": ["isolated", "centralised"], "evaluate": {"repeats": 1},
    } | more  # fmt: skip


def study(folder: Path, dictionary: dict[str, Any] | None = None, **more: Any) -> Terms:
    folder.mkdir(parents=True, exist_ok=True)
    known = dictionary_of(VIEWS).to_dict() if dictionary is None else dictionary
    (folder / "d.yaml").write_text(yaml.safe_dump(known, sort_keys=False))
    (folder / "s.yaml").write_text(yaml.safe_dump(content(**more), sort_keys=False))
    return Terms.of(folder / "s.yaml")


class Done:
    """A finished run, and its rows in one place."""

    def __init__(self, folder: Path, frames: dict[str, pd.DataFrame] | None = None, **more: Any):
        self.terms = study(folder, **more)
        self.tables = tables_of(self.terms, shares() if frames is None else frames)
        self.out = folder / "out"
        run_local(self.terms, self.tables, self.out)
        self.results = results_of(self.out)
        self.blind = pd.concat([t.halves(0).blind for t in self.tables], ignore_index=True)

    def saved(self, arm: str) -> saved.Saved:
        return saved.read(self.out / "models" / arm)

    def metrics(self, arm: str, site: str | None = None) -> dict[str, float | None]:
        rows = [r for r in self.results["arms"] if (r["arm"], r["site"]) == (arm, site)]
        return rows[0]["metrics"]

    def judge(self, rows: pd.DataFrame | None = None) -> Latent:
        """Return what judges blind rows in one place: all of them, or some."""
        frames = {t.site: t.halves(0).train for t in self.tables}
        problem = Problem(frames, self.terms.seen, None, self.terms.plan.min_cell, task="latent")
        return Latent.of(problem, self.blind if rows is None else rows)
