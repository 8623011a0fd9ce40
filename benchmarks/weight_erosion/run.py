"""Weight Erosion and other personalised models of three data sets, every site as the user.

    python benchmarks/weight_erosion/run.py --out DIR [--titanic FILE] [--heart FILE] [--mds FILE]
        [--survival FILE] [--parts paper erosion baselines ranks] [--seeds 20] [--start 0]
    python benchmarks/weight_erosion/run.py --check --titanic FILE

Logistic regression with a penalty of 1e-3, from a start at 0, which is the paper's linear layer of
two outputs with log-softmax. `cohorts.py` says which rows are whose. Parts:

- `paper` (Titanic): 30 rounds of one batch each, at the paper's rates: Global (p_d 0, η 0.07; and
  with 3), Local (3), Erosion (p_d 0.01, p_s 0.2, 3).
- `erosion`: full gradients, 300 rounds, of each p_d of `CANDIDATES`, with distances against the
  gradient (the paper's) and against noise; each also with the labels of the next site flipped, and
  with 5 folds of the user's training rows, by which `show.py` chooses p_d. And the optima: Global
  of all rows, Local of the user's; p_d 0 is the mean of sites' losses.
- `baselines`: method `personal`, its ways, after some of their rounds.
- `ranks`: methods `ndoye` and `influence`, and where they put a site whose labels are flipped; with
  the covariates `FEW`, as sites tell nothing where fewer than `min_cell` rows of an outcome have a
  value of a covariate.
- of `--survival` (the file of `--mds`) there is one part: Cox models by `weight_erosion` and the
  ways of `personal`, by the C-index of the user's test.

The first two are by `loop.py`, which `--check` holds against
`fedcohort.algorithms.weight_erosion.erosion` for one seed: that fits one setting in seconds, where
folds and settings make 60 fits of each user.

Writes DIR/COHORT.jsonl, a line per configuration, and goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cohorts import COHORTS, Case, titanic
from loop import FOLDS, L2, Judged, erode, fold_of, judged, optimum

from fedcohort.algorithms.weight_erosion import erosion
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.models.network import Mlp
from fedcohort.protocol import FedcohortError, Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.networks.plan import Plan
from fedcohort.training.personal import PARTED

sys.path.append(str(Path(__file__).parents[1]))
from book import Book

#: p_d of each kind of distance. p_s is 0: full gradients use all rows of all sites equally often.
CANDIDATES = {"gradient": (0.0, 0.0003, 0.001, 0.003, 0.01), "noise": (0.01, 0.03, 0.1, 0.3, 1.0)}
REUSE = 0.0
#: Rounds of full gradients, and those after which accuracy and α are written.
ROUNDS, SHOWN = 300, (1, 2, 5, 10, 20, 30, 60, 100, 200, 300)
#: Arm → η, p_d of the paper's protocol.
PAPER = {
    "Global, 0.07": (0.07, 0.0), "Global, 3": (3.0, 0.0), "Local, 3": (3.0, 0.0),
    "Erosion, 3": (3.0, 0.01),
}  # fmt: skip
#: Ways of `personal`, with settings as they are by default, and their rounds.
WAYS = ("local", "global", "finetune", "fedper", "fedrep", "ditto", "apfl", "cluster")
WAY_ROUNDS = 60
#: Of a Cox model, which has no intercept, what is a site's own in fedper and fedrep.
OWN = ("age",)
#: Arm → settings of `weight_erosion`, of Cox models.
COX_EROSION: dict[str, dict[str, Any]] = {
    "gradient": {"against": "gradient", "p_d": 0.001},
    "noise": {"against": "noise", "p_d": 0.1},
}


#: Rows → kind of task, outcome, model.
TASKS: dict[type, tuple[Any, str, str]] = {
    LabelledTable: ("classification", "binary", "logistic"),
    SurvivalTable: ("survival", "survival", "cox"),
}

#: Covariates of `ranks`, where not all.
FEW = {
    "titanic": ("fare", "female", "alone"),
    "heart": ("age", "trestbps", "thalach", "oldpeak"),
    "mds": ("age", "bm_blast_pct", "hb", "plt", "male"),
}


def right(theta: Array, test: LabelledTable) -> float:
    """Return the share of rows whose likelier outcome is theirs."""
    return float(((test.x @ theta[:-1] + theta[-1] > 0) == (test.y > 0)).mean())


def paper(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arms as in the paper, with accuracy and α by round."""
    for arm, (rate, p_d) in PAPER.items() if case.batch else ():
        sites = {case.user: case.sites[case.user]} if arm.startswith("Local") else case.sites
        found = erode(
            dict(sites), case.user, np.array([p_d]), 0.2, "gradient", rate, 30, case.seed,
            batch=case.batch,
        )  # fmt: skip
        seen = [right(theta, case.test) for theta in found.theta[:, 0]]
        alpha = {s: found.alpha[:, 0, k].round(4).tolist() for k, s in enumerate(sites)}
        del alpha[case.user]
        yield arm, {"last": seen[-1], "accuracy": seen, "alpha": alpha,
                    "theta": found.theta[-1, 0].tolist()}  # fmt: skip


def of_candidates(case: Case, found: Judged, p_d: tuple[float, ...]) -> dict[str, Any]:
    """Return what each candidate came to."""
    at = [r - 1 for r in SHOWN]
    return {
        "p_d": p_d,
        "rows": len(case.sites[case.user].y),
        "right": found.right.tolist(),
        "loss": found.loss.tolist(),
        "accuracy": [
            [right(found.theta[r, k], case.test) for r in at] for k in range(len(p_d))
        ],
        "alpha": found.alpha[at].transpose(1, 0, 2).round(4).tolist(),
        "mean_alpha": found.alpha.mean(axis=0).round(4).tolist(),
        "theta": found.theta[-1].round(5).tolist(),
    }  # fmt: skip


def eroded(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the optima, and both kinds of distance with every p_d, also with flipped labels."""
    sites = dict(case.sites)
    fold = fold_of(len(sites[case.user].y), FOLDS, case.seed)
    for arm in ("Global", "Local"):
        own = sites[case.user]
        others = [t for s, t in sites.items() if s != case.user] if arm == "Global" else []
        theta, kept = optimum([own, *others]), 0
        for f in range(FOLDS):
            out = fold == f
            without = optimum([LabelledTable(own.x[~out], own.y[~out]), *others])
            kept += round(right(without, LabelledTable(own.x[out], own.y[out])) * out.sum())
        yield arm, {"last": right(theta, case.test), "theta": theta.tolist(), "right": kept,
                    "rows": len(own.y)}  # fmt: skip
    for against, p_d in CANDIDATES.items():
        for name, of in (("Erosion", case), ("flipped", case.flipped())):
            found = judged(
                dict(of.sites), case.user, p_d, REUSE, against, case.rate, ROUNDS,
                case.seed, FOLDS if name == "Erosion" else 0,
            )  # fmt: skip
            yield f"{name}, {against}", of_candidates(case, found, p_d)


def fitted(case: Case, method: str, settings: dict[str, Any]) -> Any:
    """Return a method's model."""
    entry = registry.find(method)
    hosts = [Host(name, table, entry.steps, case.seed) for name, table in case.sites.items()]
    fed = local(hosts, secure="false")
    kind, outcome, model = TASKS[type(case.test)]
    task = Task(kind=kind, features=case.features, outcome=outcome, seed=case.seed)
    config = entry.configure({"user": case.user, "model": model, "l2": L2, **settings})
    return entry.fit(fed, config, task)


def judge(model: Any, test: Any) -> float:
    """Return the share of rows that a model is right about; of times to an event, its C-index."""
    told = np.asarray(model.predict(test.x))
    if isinstance(test, SurvivalTable):
        return harrell(told, test.time, test.event)
    return float(((told > 0.5) == (test.y > 0)).mean())


def ways(case: Case, given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ways of method `personal`."""
    rounds = [r for r in SHOWN if r <= WAY_ROUNDS]
    shared = {"rounds": WAY_ROUNDS, "keep_rounds": rounds[:-1], **given}
    for way in WAYS:
        own = {"own_features": OWN} if way in PARTED and case.cohort == "survival" else {}
        try:
            model = fitted(case, "personal", {"way": way, **shared, **own})
        except FedcohortError as error:
            yield way, {"failed": f"{type(error).__name__}: {error}"}
            continue
        seen = [judge(model.at_round(r), case.test) for r in rounds]
        yield way, {"last": seen[-1], "accuracy": seen}


def baselines(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ways of method `personal`."""
    yield from ways(case, {"learning_rate": case.rate / 2})


def cox(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield Cox models of the same patients: method `personal`, and Weight Erosion."""
    for arm, settings in COX_EROSION.items():
        given = {"visit": "full", "rounds": ROUNDS, "learning_rate": 1.0, "p_s": REUSE, **settings}
        model = fitted(case, "weight_erosion", given)
        yield arm, {"last": judge(model, case.test), "alpha": dict(model.alpha)}
    yield from ways(case, {"learning_rate": 0.5})


def ranks(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `ndoye` and `influence`, and the order of sites where one has flipped labels."""
    if few := FEW.get(case.cohort):
        case = case.only(few)
    for method, listed in (("ndoye", "ranking"), ("influence", "contributions")):
        for name, of in ((method, case), (f"{method}, flipped", case.flipped())):
            try:
                model = fitted(of, method, {})
            except FedcohortError as error:
                yield name, {"failed": f"{type(error).__name__}: {error}"}
                continue
            order = [row["site"] for row in getattr(model, listed)]
            yield name, {"last": judge(model, of.test), "order": order,
                         "flipped": case.next_site, "left_out": list(model.left_out)}  # fmt: skip


PARTS = {
    "paper": paper, "erosion": eroded, "baselines": baselines, "ranks": ranks, "cox": cox,
}  # fmt: skip
#: Those of two classes.
CLASSES = tuple(part for part in PARTS if part != "cox")
#: The last arm of each part: a case with it is done.
LAST = {
    "paper": "Erosion, 3", "erosion": "flipped, noise", "baselines": WAYS[-1],
    "ranks": "influence, flipped", "cox": WAYS[-1],
}  # fmt: skip


def check(path: Path) -> int:
    """Hold `loop.py` against the method itself; return 1 if they differ."""
    worst = 0.0
    for case in titanic(path, [0]):
        net = Mlp(inputs=9, hidden=()).spec
        for against, p_d, p_s, batch in (
            ("gradient", 0.003, REUSE, 0), ("noise", 0.3, REUSE, 0),
            ("gradient", 0.01, 0.2, case.batch),
        ):  # fmt: skip
            plan = Plan(
                network=net, loss="logistic", epochs=1, batch_size=batch, optimiser="sgd", l2=L2
            )
            hosts = [Host(s, t, erosion.STEPS, case.seed) for s, t in case.sites.items()]
            found = erosion.train_eroding(
                local(hosts, secure="false"), case.user, np.zeros(10), plan, 30, case.rate,
                visit="batch" if batch else "full", min_cell=5,
                by=erosion.Erosion(distance=p_d, size=p_s, against=against),
            )  # fmt: skip
            path_of = erode(
                dict(case.sites), case.user, np.array([p_d]), p_s, against, case.rate, 30,
                case.seed, batch=batch,
            )  # fmt: skip
            gap = float(np.abs(path_of.theta[-1, 0] - found.theta).max())
            alpha = np.array([found.alpha[s] for s in case.sites])
            gap = max(gap, float(np.abs(path_of.alpha[-1, 0] - alpha).max()))
            worst = max(worst, gap)
            kind = f"batches of {batch}" if batch else "all rows"
            print(case.split, case.user, against, kind, f"{gap:.0e}", flush=True)
    print(f"largest difference {worst:.0e}; accepted: 1e-8")
    return int(worst > 1e-8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for cohort in COHORTS:
        parser.add_argument(f"--{cohort}", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--parts", nargs="+", choices=CLASSES, default=[*CLASSES])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.check:
        return check(given.titanic)
    given.out.mkdir(parents=True, exist_ok=True)
    for cohort, cases in COHORTS.items():
        path = getattr(given, cohort)
        if path is None:
            continue
        book = Book(given.out / f"{cohort}.jsonl")
        for case in cases(path, range(given.start, given.start + given.seeds)):
            for part in given.parts if cohort != "survival" else ("cox",):
                of = {"split": case.split, "seed": case.seed, "user": case.user}
                if not book.lacks({**of, "arm": LAST[part]}):
                    continue
                for arm, found in PARTS[part](case):
                    if book.lacks({**of, "arm": arm}):
                        book.write({**of, "arm": arm}, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
