"""Deployed studies over sites in this process, for the tests that need one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.data.outcome import levels_of
from fedcohort.data.read import sources
from fedcohort.protocol import registry
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.masked.end import NEVER, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.limits import Limits
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.secure.context import Identity
from fedcohort.study.at_site.judging import Said
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.judge.summed import evaluation
from fedcohort.study.judge.summed.evaluation import Found
from fedcohort.study.run.engine import Problem, Run, fit_once
from fedcohort.study.run.runner import run_over as run
from fedcohort.study.sites.layout import seed_of
from fedcohort.study.sites.sites import LocalSites
from loopback import LoopbackLine

NAMES = ("bergen", "oslo", "tromsø")
STUDY = """\
study: net
data: {{source: 'sample:{sample}'{data}}}
arms: {arms}
bounds: {bounds}
evaluate: {{repeats: {repeats}{metrics}}}
"""
SECONDS = re.compile(r'("seconds": )[0-9.]+')


def terms_of(folder: Path, sample: str, arms: str, repeats: int = 1, **more: Any) -> Terms:
    folder.mkdir(parents=True, exist_ok=True)
    bounds = more.pop("bounds", "[isolated, centralised]")
    data = more.pop("data", "")
    metrics = f", metrics: {metrics}" if (metrics := more.pop("metrics", "")) else ""
    text = STUDY.format(
        sample=sample, data=data, arms=arms, repeats=repeats, bounds=bounds, metrics=metrics
    )
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


def judged(
    folder: Path, sample: str, task: str, arms: str, seed: int, **more: Any
) -> tuple[Found, Run, pd.DataFrame, pd.DataFrame, Terms]:
    """Return what a study of three unequal sites found, its model's risks, and the pooled rows."""
    frame = sources.load(f"sample:{sample}", folder).frames
    where = np.random.default_rng(seed).choice(3, len(frame), p=(0.5, 0.3, 0.2))
    frames = {s: frame[where == i].reset_index(drop=True) for i, s in enumerate(NAMES)}
    terms = terms_of(folder / str(seed), sample, arms, task=task, seed=seed, **more)
    tables = tables_of(terms, frames)
    halves = {t.site: t.halves(0) for t in tables}
    train = {s: h.train for s, h in halves.items()}
    problem = Problem(train, terms.dictionary, terms.outcome, terms.plan.min_cell)
    arm = terms.plan.arms[1]
    run = fit_once(
        problem, registry.find(arm.method), arm.configured(), arm.preprocess,
        seed_of(terms.plan, 0),
    )  # fmt: skip
    fed = LocalSites(terms, tables).federation(
        "judge-r0000-a01", quorum=1.0, ledger=Ledger(terms.plan.min_cell), journal=None,
        observer=None,
    )  # fmt: skip
    model = Said.by(run, arm.method)
    levels = levels_of(terms.outcome, terms.dictionary)
    found = evaluation.judge(fed, terms.plan, model, levels=levels, posterior=True)
    blind = pd.concat([h.blind.assign(site=s) for s, h in halves.items()], ignore_index=True)
    return found, run, pd.concat(train.values(), ignore_index=True), blind, terms


class MaskedSites:
    """Sites with keys at the other end of a line, that answer no sum plainly or weighted.

    once : site → what `open_session` takes of that name.
    fault : as `LoopbackLine` takes it. timeout : seconds that a call may take.
    """

    def __init__(self, terms, tables, folder, once=lambda site: None, fault=None, timeout=20.0):
        own = {t.site: Identity.new() for t in tables}
        pinned = {name: key.public for name, key in own.items()}

        def end(table):
            rule = SumRule(NEVER, lambda: Keys(own[table.site], pinned), weights=False)
            return SiteEnd(
                table.site,
                lambda _, session: open_session(terms, table, session, 5, once=once(table.site)),
                Answers(folder / f"{table.site}.sqlite"),
                limits=Limits(min_cell=5),
                sums=lambda _: rule,
            )

        def handled(name):
            return lambda request: self._ends[name].handle(request)

        self.absent = {}
        self._pinned, self._hash, self._timeout = pinned, terms.hash, timeout
        self._made = {t.site: lambda t=t: end(t) for t in tables}
        self._ends = {name: made() for name, made in self._made.items()}
        self._line = LoopbackLine({name: handled(name) for name in self._ends}, fault)

    noise = "system"

    @property
    def names(self):
        return tuple(self._line.sites)

    def restart(self, name):
        """Start a node again: what it held in memory is gone."""
        self._ends[name] = self._made[name]()

    def federation(self, session, **options):
        return remote(
            self._line, self._hash, session, timeout=self._timeout, patience=0.01,
            masks=self._pinned, **options,
        )  # fmt: skip

    def close(self, session):
        pass
