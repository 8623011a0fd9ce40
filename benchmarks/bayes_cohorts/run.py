"""Methods with a posterior beside those without one, on tables of `benchmarks/boosting/cases.py`.

    python benchmarks/bayes_cohorts/run.py PART --data FOLDER [--seeds 5] [--only NAME ...]
        [--arms ARM ...] [--more] [--book FILE] [--out FILE]

    classes    heart, four hospitals: AUC, log loss, Brier score, ECE, calibration slope
    survival   GBSG2, METABRIC, SUPPORT, the MDS cohort in four scenarios: C, integrated Brier
               score, interval log loss, ECE at the middle time
    values     diabetes, housing: RMSE, negative log predictive density, coverage of 90 % intervals
    left-out   heart: AUROC of scores that tell rows of a hospital that took no part

A seed draws a quarter of the rows for judging, and all arms of a seed share it. ECE is the mean
over ten groups by prediction (of survival five) of |predicted − observed|, weighted by rows.
Interval log loss: of ten intervals of time, −ln of the probability of the one in which a patient
died, or of living until the start of the interval of the last observation. Coverage: rows of all
seeds together.

Networks (`classifier`, `deepcox`, `regressor`, `bayes_net`) take the setting of `TRIED` with the
smallest log loss (of its kind) on a quarter of the training rows; then all training rows are
fitted. The linear methods have their default settings; `logistic` and `cox` get a smaller min_cell
or a ridge where they refuse a table.

Accepted: AUC and C at least the method's without a posterior (`BESIDE`), less 0.005; log loss and
ECE, or integrated Brier score and interval log loss, below both of those; coverage 88 to 92 %. The
exit code is 1 where one does not hold.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm, t

import fedcohort as fc
from fedcohort.metrics import calibration, classification
from fedcohort.metrics.survival.brier import evaluation_times, integrated_brier
from fedcohort.metrics.uncertainty import exact_interval, inside

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "boosting")]
import cases as tables
from book import Book, asks_out, keep
from cases import Case, gap, told

NET = {"hidden": (16,), "internal_epochs": 5, "learning_rate": 0.01, "batch_size": 64}
#: Settings among which training rows choose.
TRIED: Mapping[str, Sequence[dict[str, Any]]] = {
    "classifier": [{"rounds": 10}, {"rounds": 30}],
    "deepcox": [
        {"strategy": "exact", "rounds": rounds, "learning_rate": 0.03} for rounds in (50, 100)
    ],
    "regressor": [{"rounds": 20}, {"rounds": 60}],
    "bayes_net": [{"rounds": 20, "prior_scale": scale, **NET} for scale in (0.3, 1.0)],
    "bayes_net_small": [
        {"rounds": 40, "prior_scale": scale, **NET, "hidden": (4,)} for scale in (0.1, 0.3)
    ],
}
#: Arms of a type of outcome. `bayes_cox` belongs to survival.
ARMS = {
    "binary": ("logistic", "bayes_logistic", "classifier", "bayes_net"),
    "survival": ("cox", "deepcox", "bayes_net"),
    "continuous": ("ridge", "bayes_linear", "regressor", "bayes_net"),
}
#: A second try of each type, with `--more`: fewer units, more rounds, a narrower prior.
MORE = "bayes_net_small"
#: Methods without a posterior, with which others are compared.
BESIDE = {"binary": ("logistic", "classifier"), "survival": ("cox", "deepcox")}
BINS, GROUPS, LEVEL, LEAST = 10, 5, 0.9, 1e-12
Rows = pd.DataFrame


def fitted(case: Case, train: Rows, seed: int, arm: str, **settings: Any) -> fc.Fit:
    """Return a fit over the table's sites."""
    fed = fc.simulate(case.over_sites(train, seed), outcome=case.outcome, seed=seed)
    if arm in ("logistic", "cox"):
        return tables.linear(case, fed)[0]
    if arm == "bayes_logistic":
        settings["min_cell"] = 1
    return fc.fit("bayes_net" if arm == MORE else arm, fed, **settings)


def chosen(case: Case, train: Rows, seed: int, arm: str) -> dict[str, Any]:
    """Return the setting that training rows choose."""
    tried = TRIED.get(arm, [{}])
    if len(tried) == 1:
        return tried[0]
    order = np.random.default_rng((seed, 1)).permutation(len(train))
    cut = len(order) // 4
    blind, rest = (train.iloc[r].reset_index(drop=True) for r in np.split(order, [cut]))
    found: list[float] = []
    for one in tried:
        try:
            found.append(criterion(case, rest, blind, fitted(case, rest, seed, arm, **one)))
        except fc.FedcohortError as error:
            print(f"{case.name} {arm} {one}: {error}", flush=True)
            found.append(np.inf)
    return tried[int(np.argmin(found))]


def criterion(case: Case, train: Rows, test: Rows, fit: fc.Fit) -> float:
    """Return what a setting is chosen by, smaller is better."""
    judged = JUDGES[case.outcome.type](case, train, test, fit)
    return judged[{"binary": "log_loss", "survival": "interval_loss", "continuous": "nlpd"}[
        case.outcome.type
    ]]  # fmt: skip


def of_classes(case: Case, train: Rows, test: Rows, fit: fc.Fit) -> dict[str, float]:
    """Return the metrics of probabilities."""
    (y,), p = case.outcomes(test), fit.predict(test)
    groups = classification.calibration_groups(y, p)
    return {
        "auc": case.score(test, p),
        "log_loss": float(classification.log_loss(y, p)),
        "brier": float(classification.brier(y, p)),
        "ece": float(np.average(np.abs(groups.predicted - groups.observed), weights=groups.n)),
        "slope": float(classification.calibration_slope(y, p)),
    }


def of_survival(case: Case, train: Rows, test: Rows, fit: fc.Fit) -> dict[str, float]:
    """Return the metrics of survival curves."""
    (time, event), (own, died) = case.outcomes(train), case.outcomes(test)
    died = died > 0
    at = evaluation_times(time, event > 0, own, died)
    curves = np.asarray(fit.predict_survival(test, at))
    groups = calibration.calibration_groups(curves[:, len(at) // 2], own, died, at[len(at) // 2],
                                            GROUPS)  # fmt: skip
    return {
        "c_index": case.score(test, fit.predict(test)),
        "ibs": integrated_brier(time, event > 0, own, died, curves, at),
        "interval_loss": interval_loss(fit, test, own, died, at[-1]),
        "ece": float(np.average(np.abs(groups.predicted - groups.observed), weights=groups.n)),
    }


def interval_loss(fit: fc.Fit, test: Rows, time: Any, died: Any, end: float) -> float:
    """Return the interval log loss, with ends at deciles of the times of death up to `end`."""
    edges = np.unique(np.quantile(time[died & (time < end)], np.linspace(0, 1, BINS + 1)[1:-1]))
    ends = np.r_[0.0, edges, end]
    alive = np.column_stack([np.ones(len(test)), fit.predict_survival(test, ends[1:])])
    within = np.minimum(np.searchsorted(ends, time, side="left") - 1, len(ends) - 2)
    rows = np.arange(len(test))
    dead = died & (time <= end)
    lived = np.where(time > end, alive[:, -1], alive[rows, within])  # censored: until its interval
    mass = np.where(dead, alive[rows, within] - alive[rows, within + 1], lived)
    return float(-np.log(np.maximum(mass, LEAST)).mean())


def of_values(case: Case, train: Rows, test: Rows, fit: fc.Fit) -> dict[str, float]:
    """Return the metrics of values.

    The predictive law of `bayes_linear` is Student's, of `bayes_net` a normal one with its mean
    and variance; without a posterior a normal one with the training rows' residual sd.
    """
    (y,), f = case.outcomes(test), np.asarray(fit.predict(test))
    out = {"rmse": case.score(test, f)}
    if fit.method == "bayes_linear":
        ends = fit.intervals(test, LEVEL).to_numpy()
        half = (ends[:, 1] - ends[:, 0]) / 2.0
        law = t(fit.model.freedom, f, half / t.ppf(0.5 + LEVEL / 2, fit.model.freedom))
    elif fit.method == "bayes_net":
        ends = fit.intervals(test, LEVEL).to_numpy()
        law = norm(f, np.sqrt(fit.uncertainty(test).sum(axis=1).to_numpy()))
    else:
        law = norm(f, np.std(case.outcomes(train)[0] - fit.predict(train)))
        ends = np.column_stack(law.interval(LEVEL))
    width = float((ends[:, 1] - ends[:, 0]).mean())
    held = {"inside": float(inside(y, ends)), "rows": float(len(y)), "width": width}
    return out | {"nlpd": float(-law.logpdf(y).mean())} | held


JUDGES: Mapping[str, Callable[[Case, Rows, Rows, fc.Fit], dict[str, float]]] = {
    "binary": of_classes, "survival": of_survival, "continuous": of_values,
}  # fmt: skip


def measured(case: Case, arm: str, seed: int) -> dict[str, Any]:
    """Return the metrics of one arm, and its chosen setting."""
    train, test = case.drawn(seed)
    settings = chosen(case, train, seed, arm)
    fit = fitted(case, train, seed, arm, **settings)
    found = JUDGES[case.outcome.type](case, train, test, fit)
    return {**found, "settings": {k: v for k, v in settings.items() if k not in NET}}


def over_arms(given: argparse.Namespace, book: Book, spread: Sequence[Case]) -> int:
    """Measure each table; return the number of broken claims."""
    broken = 0
    for case in spread:
        if given.only and case.name not in given.only and case.group not in given.only:
            continue
        kind, found = case.outcome.type, {}
        arms = (*ARMS[kind], *([MORE] if given.more else []))
        for arm in [name for name in arms if not given.arms or name in given.arms]:
            of = {"case": case.group, "arm": arm}
            found[arm] = book.of_seeds(of, given.seeds, partial(measured, case, arm))
        out = {"seeds": given.seeds, "rows": len(case.frame)}
        names = [name for name, v in next(iter(found.values()))[0].items() if isinstance(v, float)]
        print(f"\n{case.group:18}" + " ".join(f"{name:>14}" for name in names))
        for arm, rows in found.items():
            table = pd.DataFrame(rows)
            for name in names:
                out[f"{arm}_{name}"] = round(float(table[name].mean()), 4)
            print(f"{arm:18}" + " ".join(f"{out[f'{arm}_{name}']:14.4f}" for name in names))
        wrong, more = claims(case, found)
        print("\n".join(wrong))
        broken += len(wrong)
        keep(given.out, {case.group: out | more})
    return broken


def claims(case: Case, found: dict[str, Any]) -> tuple[list[str], dict[str, float]]:
    """Return the claims of a table that do not hold, and differences with their intervals."""
    kind, wrong, out = case.outcome.type, list[str](), dict[str, float]()
    posterior = [arm for arm in found if arm.startswith("bayes_")]
    if kind == "continuous":
        for arm, rows in found.items():
            table = pd.DataFrame(rows)
            count, n = int(table["inside"].sum()), int(table["rows"].sum())
            low, high = exact_interval(count, n)
            names = ("coverage", "coverage_low", "coverage_high")
            parts = zip(names, (count / n, low, high), strict=True)
            out |= {f"{arm}_{name}": round(value, 4) for name, value in parts}
            if arm in posterior and not 0.88 <= count / n <= 0.92:
                wrong.append(f"{case.group} {arm}: 90 % intervals hold {count / n:.3f}")
        return wrong, out
    losses = {"binary": ("log_loss", "ece"), "survival": ("ibs", "interval_loss")}[kind]
    for arm in posterior:
        for beside in [name for name in BESIDE[kind] if name in found]:
            both = [{"one": a, "other": b} for a, b in zip(found[arm], found[beside], strict=True)]
            for name in (case.metric, *losses):
                rows = [{k: v[name] for k, v in row.items()} for row in both]
                of = gap(rows, "one", "other", case.ratio)
                if len(rows) > 2:  # else there is no interval
                    out |= told(f"{arm}_{beside}_{name}", of)
                worse = of.difference < -0.005 if name == case.metric else of.difference >= 0.0
                if worse:
                    wrong.append(
                        f"{case.group} {arm} − {beside}, {name}: {of.difference:+.4f} "
                        f"({of.low:+.4f} to {of.high:+.4f})"
                    )
    return wrong, out


# a hospital that took no part -----------------------------------------------------------------


def left_out(case: Case, site: str, seed: int) -> dict[str, Any]:
    """Return AUROC of scores that tell rows of the hospital from held-out rows of the others."""
    every = case.over_sites(case.frame, 0)
    known = fc.simulate(every, outcome=case.outcome).dictionary
    strange, rng = every.pop(site), np.random.default_rng(seed)
    sites, blind = {}, []
    for name, rows in sorted(every.items()):
        order = rng.permutation(len(rows))
        cut = len(order) // 5
        blind.append(rows.iloc[order[:cut]])
        sites[name] = rows.iloc[np.sort(order[cut:])].reset_index(drop=True)
    fed = fc.simulate(sites, outcome=case.outcome, dictionary=known, seed=seed)
    fit = fc.fit("bayes_logistic", fed, min_cell=1)
    net = fc.fit("bayes_net", fed, **TRIED["bayes_net"][1])
    plain, _ = tables.linear(case, fed)
    here = pd.concat(blind, ignore_index=True)

    def auroc(score: Callable[[Rows], Any]) -> float:
        both = [np.asarray(score(rows), float) for rows in (here, strange)]
        y = np.repeat([0.0, 1.0], [len(part) for part in both])
        return float(classification.auc(y, np.concatenate(both)))

    def unsure(rows: Rows) -> Any:
        return -np.abs(plain.predict(rows) - 0.5)

    scores = {
        "unlike_training": fit.unlike_training,
        "epistemic_logistic": lambda rows: fit.uncertainty(rows)["epistemic"],
        "epistemic_net": lambda rows: net.uncertainty(rows)["epistemic"],
        "unsure": unsure,
    }
    return {name: auroc(score) for name, score in scores.items()} | {"rows": len(strange)}


def at_left_out(given: argparse.Namespace, book: Book, spread: Sequence[Case]) -> int:
    """Print AUROC by hospital and score; nothing is claimed."""
    for case in spread:
        every: list[dict[str, float]] = []
        for site in sorted(case.over_sites(case.frame, 0)):
            of = {"case": f"left_out_{case.name}", "site": site}
            rows = pd.DataFrame(book.of_seeds(of, given.seeds, partial(left_out, case, site)))
            mean = {name: round(float(rows[name].mean()), 4) for name in rows.columns}
            keep(given.out, {f"left_out_{site}": {"seeds": given.seeds, **mean}})
            print(f"{site:14}", *(f"{name} {value:.3f}" for name, value in mean.items()))
            every.append(mean)
        table = pd.DataFrame(every).drop(columns="rows")
        keep(given.out, {"left_out": {k: round(float(v), 4) for k, v in table.mean().items()}})
    return 0


def main() -> int:
    """Run a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=["classes", "survival", "values", "left-out"])
    parser.add_argument("--data", type=Path, required=True, help="folder with heart/, uci/, …")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--arms", nargs="*", default=(), help="of the part's; all if left out")
    parser.add_argument("--more", action="store_true", help="also the second try of bayes_net")
    parser.add_argument("--book", type=Path, default=Path("runs/bayes_cohorts.jsonl"))
    asks_out(parser)
    given = parser.parse_args()
    given.book.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # small sites, filled values
    book = Book(given.book)
    if given.part == "left-out":
        return at_left_out(given, book, [tables.heart(given.data)])
    kind = {"classes": "binary", "survival": "survival", "values": "continuous"}[given.part]
    spread = [
        c for c in tables.cases(given.data) if c.outcome.type == kind and c.name != "banknote"
    ]
    broken = over_arms(given, book, spread)
    print("all claims hold" if not broken else f"{broken} claims do not hold")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
