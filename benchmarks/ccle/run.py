"""CCLE over sites: regression forests and networks of images, a dense network, boosted trees.

    python benchmarks/ccle/run.py --data FOLDER --out DIR [--size small|paper] [--seeds 1]
        [--splits pair line drug] [--sites 3 5 10 15 20] [--arms ann cnn drf …]
        [--scopes federated isolated pooled initial] [--swap] [--overlap 2 8 16 24] [--rounds N]
        [--device cpu|cuda]

The protocol of Nolte et al., Bioinformatics Advances 3(1), 2023, sections 3 to 3.5, through
`fc.fit`. FOLDER has the public tables (`cohort.read`). Each finished fit is a line of
`DIR/results.jsonl`; a stopped run goes on with the next. `show.py` prints the tables.

scopes: federated; isolated, each client alone with a network of its own size; pooled; initial, the
coordinator's first rows alone. --swap permutes 20 % of the outcomes at each site, --overlap gives
each of 12 sites k drugs; both replace the plain run, and sites of --overlap are always 12.

A row has NRMSE and PCC on all test rows, and on each site's own as a mean over sites. `shuffled`
arms have a random map in place of REFINED's. `drf-personal` is federated alone: each site has its
own last layer and leaves, and they stop by the sites' own counts (the paper's table 1). `drf-halt`
is federated alone, too: no models are averaged while R is above 1.44; its rounds end at the most,
at one learning rate. If it ends halted, each site is judged with its own model. Boosting
has no use for rows of the coordinator: those of the first model are one more site there. CPU
seconds are those of this process.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from arms import FEDERATED, SIZES, Size
from cohort import OUTCOME, Cohort, additive, drawn, read

import fedcohort as fc
from fedcohort.arrays import Array
from fedcohort.metrics.regression import nrmse, pcc
from fedcohort.numerics import refined

sys.path.append(str(Path(__file__).parents[1]))
from book import Book

SCOPES = ("federated", "isolated", "pooled", "initial")
SWAPPED, OVERLAP_SITES = 0.2, 12
#: Arms with R of the sites' models, where sites have some drugs only.
WATCHED = ("ann", "cnn", "drf")
MEANS = {"drug means": False, "drug and line means": True}


@contextmanager
def shuffled_maps(seed: int) -> Generator[None]:
    """Put columns on random pixels in place of REFINED's."""
    rng, real = np.random.default_rng((0x5AFF, seed)), refined.refine

    def shuffled(d: Array, side: int) -> Any:
        pixels = rng.permutation(side**2)[: len(d)]
        return replace(real(d, side), pixels=pixels)

    with patch.object(refined, "refine", shuffled):
        yield


def scores(y: Array, f: Array) -> tuple[float, float]:
    """Return NRMSE and PCC."""
    return float(nrmse(y, f)), float(pcc(y, f))


def judged(cohort: Cohort, models: dict[str, fc.Fit]) -> dict[str, Any]:
    """Return NRMSE and PCC of all test rows and of sites' own, means over sites' models."""
    own: list[tuple[float, float]] = []
    every: dict[int, tuple[float, float]] = {}
    test = cohort.of(pd.concat(list(cohort.test.values())))
    for site, frame in cohort.test.items():
        model = models[site]
        if id(model) not in every:
            every[id(model)] = scores(test[OUTCOME].to_numpy(), model.predict(test))
        if len(frame) > 1:
            own.append(scores(frame[OUTCOME].to_numpy(), model.predict(cohort.of(frame))))
    (a, b), (c, d) = (np.mean(list(each), axis=0) for each in (every.values(), own))
    return {"nrmse": a, "pcc": b, "own_nrmse": c, "own_pcc": d}


def settings_of(
    size: Size, arm: str, scope: str, rounds: int | None, device: str = "cpu"
) -> dict[str, Any]:
    """Return the method and settings of an arm; trees are on the CPU always."""
    given = dict(size.arms[arm])
    if given["method"] != "boosting":
        given = {**size.common, **given, "device": device}
        given |= {"rounds": rounds} if rounds else {}
    if scope == "isolated":
        given |= size.alone[arm]
    if scope in ("isolated", "pooled"):
        given["strategy"] = {"isolated": "isolated", "pooled": "centralised"}[scope]
    return given


def fitted(
    cohort: Cohort, given: dict[str, Any], scope: str, seed: int
) -> tuple[dict[str, fc.Fit], fc.Fit]:
    """Return the model of each site, and the fit."""
    method = given.pop("method")
    trees = method == "boosting"
    first, validation = cohort.of(cohort.first), cohort.of(cohort.validation)
    sites = {site: cohort.of(frame) for site, frame in cohort.train.items()}
    if scope == "initial":
        sites = {"coordinator": first}
    elif trees and scope != "isolated":
        sites["coordinator"] = first
    personal = "personal" in given  # stops by the sites' own counts
    own = (None if scope == "initial" else first, None if personal else validation)
    fed = fc.simulate(
        sites, outcome=fc.Continuous(OUTCOME), dictionary=cohort.dictionary, views=cohort.views,
        seed=seed,
    )  # fmt: skip
    fit = fc.fit(method, fed, coordinator_data=None if trees else own, **given)
    if scope == "isolated" or personal:
        return {site: fit.of(site) for site in cohort.test}, fit
    if "halt" in given and len(fit.model.thetas) > 1:
        return {site: with_model(fit, k) for k, site in enumerate(sites)}, fit
    return dict.fromkeys(cohort.test, fit), fit


def with_model(fit: fc.Fit, site: int) -> fc.Fit:
    """Return the fit with the model of one site, of a training that ended halted."""
    one = replace(fit.model, thetas=fit.model.thetas[[site]], weights=np.ones(1))
    return replace(fit, parts=replace(fit.parts, model=one))


def measured(
    cohort: Cohort, arm: str, given: dict[str, Any], scope: str, seed: int
) -> dict[str, Any]:
    """Return what one fit came to."""
    torch.manual_seed(seed)
    start = time.process_time()
    with shuffled_maps(seed) if arm.endswith("shuffled") else nullcontext():
        models, fit = fitted(cohort, dict(given), scope, seed)
    cpu = time.process_time() - start
    found = judged(cohort, models) | {"cpu": cpu}
    if fit.run is not None:
        found["rounds"] = int(fit.run.rounds)
        if "R_models" in fit.history:
            found["R"] = [round(float(r), 4) for r in fit.history["R_models"].dropna()]
        if "halted" in fit.history:
            found["halted"] = int(fit.history["halted"].sum())
    return found


def plain(cohort: Cohort, *, lines: bool) -> dict[str, float]:
    """Return the scores of means, without any network."""
    y = pd.concat(list(cohort.test.values()))[OUTCOME].to_numpy()
    return dict(zip(("nrmse", "pcc"), scores(y, additive(cohort, lines=lines)), strict=True))


def scenarios(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the cases of the command line: split, number of sites, drugs of each, swap."""
    if given.overlap:
        return [
            {"split": "pair", "sites": OVERLAP_SITES, "drugs": k, "swap": 0.0}
            for k in given.overlap
        ]
    swap = SWAPPED if given.swap else 0.0
    return [
        {"split": split, "sites": n, "drugs": 0, "swap": swap}
        for split, n in itertools.product(given.splits, given.sites)
    ]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the tables of CCLE")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--size", default="small", choices=list(SIZES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--splits", nargs="+", default=["pair"], choices=["pair", "line", "drug"])
    parser.add_argument("--sites", type=int, nargs="+", default=[3])
    arms = list(SIZES["small"].arms)
    parser.add_argument("--arms", nargs="+", default=arms, choices=arms)
    parser.add_argument("--scopes", nargs="+", default=list(SCOPES[:3]), choices=SCOPES)
    parser.add_argument("--swap", action="store_true", help="permute 20 %% of the outcomes")
    parser.add_argument("--overlap", type=int, nargs="+", default=[], help="drugs of each site")
    parser.add_argument("--rounds", type=int, help="of the networks, in place of the size's")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of the networks")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    book, size = Book(given.out / "results.jsonl"), SIZES[given.size]
    rows = read(given.data)
    rounds = given.rounds or size.common["rounds"]
    for seed, case in itertools.product(given.seeds, scenarios(given)):
        of = {"size": given.size, "rounds": rounds, **case, "seed": seed}
        cohort = drawn(rows, size.columns, seed, **case)
        counts = {
            "columns": len(cohort.features), "first": len(cohort.first),
            "validation": len(cohort.validation), "test": sum(map(len, cohort.test.values())),
            "train": sum(map(len, cohort.train.values())),
        }  # fmt: skip
        for name, lines in MEANS.items():
            if book.lacks(one := {**of, "arm": name, "scope": "pooled"}):
                book.write(one, plain(cohort, lines=lines) | counts)
        for arm, scope in itertools.product(given.arms, given.scopes):
            if arm in FEDERATED and scope != "federated":
                continue
            if not book.lacks(one := {**of, "arm": arm, "scope": scope}):
                continue
            settings = settings_of(size, arm, scope, given.rounds, given.device)
            if case["drugs"] and scope == "federated" and arm in WATCHED:
                settings["monitor"] = "validation"
            found = measured(cohort, arm, settings, scope, seed)
            if settings.get("device", "cpu") != "cpu":
                found["device"] = given.device
            book.write(one, found | counts)


if __name__ == "__main__":
    main()
