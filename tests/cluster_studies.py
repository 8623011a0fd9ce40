"""Studies of clusters over sites in this process, for the tests that need one."""

from __future__ import annotations

import pandas as pd

from deployed_cases import frames_of, results_of, run_local, tables_of
from fedcohort.study.file.terms import Terms
from fedcohort.study.results import saved

SURVIVAL, GRADE = "{time: time, event: cens}", "{y: tgrade, type: category}"
ARMS = "[{method: kmeans, restarts: 5}]"


def study(folder, outcome="", **more):
    data = "{source: 'sample:gbsg2'" + f", outcome: {outcome}" * bool(outcome) + "}"
    arms = more.pop("arms", ARMS)
    folder.mkdir(parents=True, exist_ok=True)
    text = f"study: net\ntask: clustering\ndata: {data}\narms: {arms}\n"
    settings = {"bounds": "[isolated, centralised]", "evaluate": "{repeats: 1}"} | more
    text += "".join(f"{k}: {v}\n" for k, v in settings.items())
    (folder / "s.yaml").write_text(text)
    return Terms.of(folder / "s.yaml")


class Done:
    """A finished run, and its rows in one place."""

    def __init__(self, folder, outcome):
        self.terms = study(folder, outcome)
        self.tables = tables_of(self.terms, frames_of("gbsg2"))
        run_local(self.terms, self.tables, folder / "out")
        self.out = folder / "out"
        self.results = results_of(self.out)
        self.saved = saved.read(self.out / "models" / "kmeans")
        self.train, self.blind = (
            pd.concat([getattr(t.halves(0), half) for t in self.tables], ignore_index=True)
            for half in ("train", "blind")
        )
        self.x = self.saved.design.matrix(self.blind)
        self.labels = self.saved.model.predict(self.x)
        self.own = self.saved.model.predict(self.saved.design.matrix(self.train))

    def metric(self, name, arm="kmeans"):
        rows = [r for r in self.results["arms"] if r["arm"] == arm and r["site"] is None]
        return rows[0]["metrics"][name]
