"""Tables and claims of `run.py`'s results.

    python benchmarks/weight_erosion/show.py --out DIR

Prints Markdown of the data sets that are there: test accuracy (of times to death the C-index), α,
parameters; and leaves with 1 where a claim does not hold. Erosion is said of each kind of distance
(against the gradient, the paper's; against noise), its p_d chosen by the accuracy in 5 folds of
training rows: `own` by those of the user in this seed, `shared` one p_d for all users of a split,
by all of theirs in this seed; `all` one for a split, by those of all its users in all seeds.
`folds` is Global or Local, by the same folds, which needs no erosion.

Titanic, every agent of both splits as user, mean over seeds:

1. Erosion's accuracy is at least that of the better of Global and Local, less 0.01, of every user:
   in the paper's protocol; and to convergence, p_d being the user's own choice.
2. of some user it is better than both, in both.
3. AGE_SOME: of the two agents that share a population, each keeps the other's weight highest (mean
   of all rounds and seeds).
4. a site with flipped labels ends with α = 0 in every run, whatever p_d is, and last in `ndoye` and
   in `influence`.

Heart: 5. the best personalised arm has a mean over FLamby's clients of at least 0.735.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedcohort.arrays import Array

#: 0.01, and room for rounding.
CLOSE, REFERENCE = 0.01 + 1e-9, 0.735
ROUNDS = (1, 2, 5, 10, 20, 30, 60, 100, 200, 300)
PAPER = ("Global, 0.07", "Global, 3", "Local, 3", "Erosion, 3")
KINDS, CHOICES = ("gradient", "noise"), ("own", "shared", "all")
OURS = tuple(f"{kind}, {choice}" for kind in KINDS for choice in CHOICES)
OPTIMA = ("Global", "mean of sites", "Local")
BASELINES = ("finetune", "fedper", "fedrep", "ditto", "apfl", "cluster")
#: The two ends of `personal`, after as many rounds as its other ways.
ENDS = ("global", "local")
FLAMBY = {
    "pooled": 0.7353, "FedAvg": 0.6850, "FedAdam": 0.7255, "FedYogi": 0.7314, "cyclic": 0.7180,
    "best hospital alone": 0.7221, "fine-tuned FedAvg": 0.7351,
}  # fmt: skip
KEYS = ["split", "user"]


def line(*cells: object) -> None:
    print("| " + " | ".join(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells) + " |")


def head(*cells: str) -> None:
    print()
    line(*cells)
    line(*["---"] * len(cells))


def read(path: Path) -> pd.DataFrame:
    """Return a row per configuration."""
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    table = pd.DataFrame([{**row.pop("of"), **row} for row in rows])
    for column in ("p_d", "last", "order", "alpha", "right", "failed", "flipped", "left_out"):
        if column not in table:
            table[column] = None
    return table


def choose(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per split, user, seed and way to choose: what was chosen, and how it did."""
    found: list[dict[str, object]] = []
    for kind in KINDS:
        part = runs[runs.arm == f"Erosion, {kind}"]
        of_split = {
            split: (np.sum(group.right.tolist(), axis=0), np.sum(group.loss.tolist(), axis=0))
            for split, group in part.groupby("split")
        }
        for (split, seed), group in part.groupby(["split", "seed"]):
            # p_d 0 is the mean of sites' losses: no erosion.
            start = int(group.p_d.iloc[0][0] == 0)
            every = _best(*of_split[split], start)
            right, loss = (np.sum(group[c].tolist(), axis=0) for c in ("right", "loss"))
            shared = _best(right, loss, start)
            for _, row in group.iterrows():
                own = _best(np.array(row.right), np.array(row.loss), start)
                for choice, k in zip(CHOICES, (own, shared, every), strict=True):
                    found.append({
                        "split": split, "user": row.user, "seed": seed, "kind": kind,
                        "choice": choice, "arm": f"{kind}, {choice}", "p_d": row.p_d[k],
                        "last": row.accuracy[k][-1], "accuracy": row.accuracy[k],
                        "alpha": row.alpha[k], "mean_alpha": row.mean_alpha[k],
                        "theta": row.theta[k],
                    })  # fmt: skip
                if start and row.p_d[0] == 0:
                    found.append({
                        "split": split, "user": row.user, "seed": seed, "kind": kind, "choice": "",
                        "arm": "mean of sites", "p_d": 0.0, "last": row.accuracy[0][-1],
                        "accuracy": row.accuracy[0],
                    })  # fmt: skip
    ends = runs[runs.arm.isin(("Global", "Local"))]
    for (split, user, seed), group in ends.groupby([*KEYS, "seed"]):
        best = group.loc[group.right.astype(float).idxmax()]
        found.append({"split": split, "user": user, "seed": seed, "kind": "", "choice": "",
                      "arm": "folds", "last": best["last"]})  # fmt: skip
    return pd.DataFrame(found)


def _best(right: Array, loss: Array, start: int) -> int:
    return start + int(np.lexsort((loss[start:], -right[start:]))[0])


def wide(runs: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    """Return accuracy at the end: a row per split, user and seed, a column per arm."""
    part = runs[runs.arm.isin(arms) & runs["last"].notna()]
    table = part.pivot_table(index=[*KEYS, "seed"], columns="arm", values="last")
    return table.astype(float)[[a for a in arms if a in table]]


def accuracies(table: pd.DataFrame, title: str) -> None:
    """Print the mean of each arm by user, and over users, with standard errors over seeds."""
    print(f"\n{title} ({table.index.get_level_values('seed').nunique()} seeds, standard error)")
    head("split", "user", *table)
    mean, error = table.groupby(KEYS).mean(), table.groupby(KEYS).sem()
    for at, row in mean.iterrows():
        line(*at, *(f"{row[a]:.3f} ({error.loc[at, a]:.3f})" for a in table))
    for split, part in table.groupby("split"):
        by_seed = part.groupby("seed").mean()
        line(
            split, "**mean**", *(f"{by_seed[a].mean():.3f} ({by_seed[a].sem():.3f})" for a in table)
        )


def against_better(table: pd.DataFrame, ends: Sequence[str], arms: Sequence[str]) -> pd.DataFrame:
    """Print, and return, each arm less the better of the two ends by user, paired over seeds."""
    print(f"\nLess the better of {' and '.join(ends)} by user, paired over seeds (standard error)")
    head("split", "user", "better", *arms)
    gaps: dict[object, dict[str, float]] = {}
    for at, part in table.groupby(KEYS):
        better = max(ends, key=lambda a: part[a].mean())
        less = part[[*arms]].sub(part[better], axis=0)
        gaps[at] = less.mean().to_dict()
        line(*at, better, *(f"{less[a].mean():+.3f} ({less[a].sem():.3f})" for a in arms))
    found = pd.DataFrame(gaps).T
    line("", "**mean**", "", *(f"{found[a].mean():+.3f}" for a in arms))
    line("", "**least**", "", *(f"{found[a].min():+.3f}" for a in arms))
    return found


def by_p_d(runs: pd.DataFrame, optima: pd.DataFrame) -> None:
    """Print each p_d, for all users alike: nothing is chosen."""
    print("\nOne p_d for all users, after the last round")
    head("distance", "p_d", "mean accuracy", "least of a user less the better of Global and Local",
         "users better than both", "users")  # fmt: skip
    better = optima.groupby(KEYS)[["Global", "Local"]].mean().max(axis=1)
    for kind in KINDS:
        part = runs[runs.arm == f"Erosion, {kind}"]
        for k, p_d in enumerate(part.p_d.iloc[0]):
            last = part.assign(last=[a[k][-1] for a in part.accuracy]).groupby(KEYS)["last"].mean()
            gap = last - better
            line(kind, f"{p_d:g}", float(last.mean()), f"{gap.min():+.3f}", int((gap > 0).sum()),
                 len(gap))  # fmt: skip


def other_choices(runs: pd.DataFrame, optima: pd.DataFrame) -> None:
    """Print what other ways to choose p_d by each user's folds come to."""
    print("\nOther ways to choose by the user's folds, after the last round")
    head("choice", "mean accuracy", "least of a user less the better of Global and Local", "most",
         "users better than both", "users")  # fmt: skip
    better = optima.groupby(KEYS)[["Global", "Local"]].mean().max(axis=1)
    index = [*KEYS, "seed"]
    by = {kind: runs[runs.arm == f"Erosion, {kind}"].set_index(index) for kind in KINDS}
    for name, kinds, by_loss in (
        ("gradient, log loss", ("gradient",), True), ("noise, log loss", ("noise",), True),
        ("either distance, accuracy", KINDS, False), ("either distance, log loss", KINDS, True),
    ):  # fmt: skip
        last: dict[object, float] = {}
        for at in by[KINDS[0]].index.intersection(by[KINDS[1]].index):
            seen = [
                (-(not by_loss) * row.right[k], row.loss[k], row.accuracy[k][-1])
                for row in (by[kind].loc[at] for kind in kinds)
                for k in range(len(row.p_d))
                if row.p_d[k]
            ]
            last[at] = min(seen)[2]
        mean = pd.Series(last).groupby(level=[0, 1]).mean()
        gap = mean - better
        line(name, float(mean.mean()), f"{gap.min():+.4f}", f"{gap.max():+.4f}",
             int((gap > 0).sum()), len(gap))  # fmt: skip


def by_round(chosen: pd.DataFrame, names: Mapping[tuple[str, str], list[str]]) -> None:
    """Print accuracy by round, and α where p_d is one for a split."""
    part = chosen[chosen.arm.isin([*OURS, "mean of sites"])]
    print("\nAccuracy by round, mean over users and seeds")
    head("split", "arm", *map(str, ROUNDS))
    for at, group in part.groupby(["split", "arm"]):
        line(*at, *map(float, np.mean(group.accuracy.tolist(), axis=0)))
    print("\nα by round, mean over seeds")
    head("distance", "split", "user", "site", *map(str, ROUNDS), "mean of all")
    for at, group in chosen[chosen.choice == "all"].groupby(["kind", *KEYS]):
        alpha = np.mean(group.alpha.tolist(), axis=0)
        mean = np.mean(group.mean_alpha.tolist(), axis=0)
        for k, site in enumerate(names[at[1:]]):
            if site != at[2]:
                line(*at, site, *(f"{a:.2f}" for a in alpha[:, k]), f"{mean[k]:.2f}")
    print("\np_d chosen, by runs")
    head("distance", "choice", "p_d", "runs")
    counts = chosen[chosen.choice != ""].groupby(["kind", "choice"]).p_d.value_counts().sort_index()
    for at, count in counts.items():
        line(at[0], at[1], f"{at[2]:g}", count)


def paper_alpha(runs: pd.DataFrame) -> bool:
    """Print α of the paper's protocol by round; return whether claim 3 holds of it."""
    print("\nα by round, mean over seeds, as in the paper")
    shown = (1, 5, 10, 15, 20, 25, 30)
    head("split", "user", "site", *map(str, shown), "mean of all")
    means: dict[tuple[str, str], dict[str, float]] = {}
    for at, group in runs[runs.arm == "Erosion, 3"].groupby(KEYS):
        for site in group.alpha.iloc[0]:
            alpha = np.mean([a[site] for a in group.alpha], axis=0)
            means.setdefault(at, {})[site] = float(alpha.mean())
            line(*at, site, *(f"{alpha[r - 1]:.2f}" for r in shown), f"{alpha.mean():.2f}")
    pairs = {"agent0": "agent1", "agent1": "agent0"}
    return all(max(means["AGE_SOME", u], key=means["AGE_SOME", u].__getitem__) == mate
               for u, mate in pairs.items())  # fmt: skip


def sites_of(runs: pd.DataFrame) -> dict[tuple[str, str], list[str]]:
    """Return the sites of each user's federation, in the order of α."""
    return {
        (split, user): sorted(runs[runs.split == split].user.unique())
        for split, user in runs.groupby(KEYS).groups
    }


def flipped(runs: pd.DataFrame, names: Mapping[tuple[str, str], list[str]]) -> dict[str, bool]:
    """Print where a site with flipped labels ends; return which of it holds."""
    print("\nThe next site's labels flipped: α at the end, p_d fixed; and ranks")
    head("distance", "p_d", "runs", "flipped at 0", "largest", "mean α of the others")
    ends: dict[str, bool] = {}
    for kind in KINDS:
        part = runs[runs.arm == f"flipped, {kind}"]
        for k, p_d in enumerate(part.p_d.iloc[0]):
            if not p_d:
                continue
            own, others = [], []
            for _, row in part.iterrows():
                sites = names[row.split, row.user]
                at = sites.index(row.user)
                bad = (at + 1) % len(sites)
                last = row.alpha[k][-1]
                own.append(last[bad])
                others += [a for j, a in enumerate(last) if j not in (at, bad)]
            zero = int(np.sum(np.array(own) == 0))
            ends[f"{kind}, p_d {p_d:g}"] = zero == len(own)
            line(kind, f"{p_d:g}", len(own), zero, f"{max(own):.2f}", f"{np.mean(others):.2f}")
    head("method", "runs", "flipped last", "it tells nothing", "the user tells nothing")
    for method in ("ndoye", "influence"):
        part = runs[runs.arm == f"{method}, flipped"]
        fine = part[part.order.notna()]
        if not len(fine):
            continue
        out = [f in gone for f, gone in zip(fine.flipped, fine.left_out, strict=True)]
        last = [
            f == o[-1] for f, o, gone in zip(fine.flipped, fine.order, out, strict=True) if not gone
        ]
        line(method, len(part), f"{int(np.sum(last))} of {len(last)}", int(np.sum(out)),
             len(part) - len(fine))  # fmt: skip
        ends[method] = len(last) > 0 and all(last)
    return ends


def parameters(runs: pd.DataFrame, chosen: pd.DataFrame, features: Sequence[str]) -> None:
    """Print θ of the first seed's first user, side by side."""
    split, user, seed = runs.split.iloc[0], runs.user.iloc[0], runs.seed.min()
    at = (runs.split == split) & (runs.user == user) & (runs.seed == seed)
    of = {arm: runs[at & (runs.arm == arm)].theta.iloc[0] for arm in ("Global", "Local")}
    same = (chosen.split == split) & (chosen.user == user) & (chosen.seed == seed)
    for kind in KINDS:
        of[f"Erosion, {kind}"] = chosen[same & (chosen.arm == f"{kind}, all")].theta.iloc[0]
    print(f"\nCoefficients: {split}, user {user}, seed {seed}")
    head("", *of)
    for k, name in enumerate([*features, "intercept"]):
        line(name, *(f"{theta[k]:+.2f}" for theta in of.values()))


def survival(path: Path) -> None:
    """Print the C-index of Cox models of times to death."""
    runs = read(path)
    runs = runs.assign(failed=runs.failed.notna())
    if (count := int(runs.failed.sum())) > 0:
        print(f"\nsurvival: {count} fits failed")
    table = wide(runs, (*KINDS, *ENDS, *BASELINES)).dropna()
    accuracies(table, "\n# survival: C-index of the user's test")
    against_better(table, ENDS, (*KINDS, *BASELINES))


TITANIC = ("fare", "female", "port C", "port Q", "alone", "class 1", "class 2", "age", "minor")


def cohort(path: Path, name: str) -> dict[str, bool]:
    """Print the tables of one data set; return its claims."""
    runs = read(path)
    names = sites_of(runs)
    chosen = choose(runs)
    every = pd.concat([runs, chosen])
    print(f"\n# {name}: {runs.seed.nunique()} seeds")
    claims: dict[str, bool] = {}
    if name == "titanic" and (runs.arm == PAPER[-1]).any():
        table = wide(runs, PAPER).dropna()
        accuracies(table, "As in the paper: 30 rounds, batches")
        against_better(table, ("Global, 3", "Local, 3"), ("Erosion, 3",))
        gaps = against_better(table, ("Global, 0.07", "Local, 3"), ("Erosion, 3",))["Erosion, 3"]
        print(f"\nleast {gaps.min():+.4f}, most {gaps.max():+.4f}")
        claims["1. paper's protocol: no user worse by more than 0.01"] = bool(gaps.min() >= -CLOSE)
        claims["2. paper's protocol: better than both of some user"] = bool(gaps.max() > 0)
        claims["3. paper's protocol: who shares the user's population keeps most"] = paper_alpha(
            runs
        )
    table = wide(every, (*OPTIMA, "folds", *OURS))
    accuracies(table, "To convergence")
    gaps = against_better(table, ("Global", "Local"), ("mean of sites", "folds", *OURS))
    if (runs.arm == "finetune").any():
        some = wide(every, (*OPTIMA, *OURS, *ENDS, *BASELINES)).dropna()
        accuracies(some, "Beside other personalised models, of the seeds that have all")
        against_better(some, ("Global", "Local"), (*OURS, *ENDS, *BASELINES))
    by_p_d(runs, table)
    other_choices(runs, table)
    by_round(chosen, names)
    ends = flipped(runs, names)
    if name == "titanic":
        parameters(runs, chosen, TITANIC)
        print()
        for arm in ("mean of sites", "folds", *OURS):
            print(f"{arm}: least {gaps[arm].min():+.4f}, most {gaps[arm].max():+.4f}, better than "
                  f"both of {int((gaps[arm] > 0).sum())} of {len(gaps)} users")  # fmt: skip
        for kind in KINDS:
            own = gaps[f"{kind}, own"]
            claims[f"1. to convergence, {kind}: no user worse by more than 0.01"] = bool(
                own.min() >= -CLOSE
            )
            claims[f"2. to convergence, {kind}: better than both of some user"] = bool(
                own.max() > 0
            )
            part = chosen[(chosen.arm == f"{kind}, all") & (chosen.split == "AGE_SOME")]
            holds = []
            for user, mate in (("agent0", 1), ("agent1", 0)):
                alpha = np.mean(part[part.user == user].mean_alpha.tolist(), axis=0)
                own = int(user[-1])
                holds.append(mate == max((k for k in range(4) if k != own), key=lambda k: alpha[k]))
            claims[f"3. {kind}: who shares the user's population keeps most"] = all(holds)
        claims |= {f"4. flipped labels, {what}": holds for what, holds in ends.items()}
    if name == "heart":
        published = every[every.split == "FLamby"]
        means = wide(published, (*OURS, *BASELINES)).groupby("user").mean().mean()
        print(
            "\nFLamby, mean over clients: " + ", ".join(f"{k} {v:.3f}" for k, v in FLAMBY.items())
        )
        print(f"best personalised arm here: {means.idxmax()} {means.max():.3f}")
        claims["5. heart: best personalised arm at least 0.735"] = bool(means.max() >= REFERENCE)
    return claims


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    claims: dict[str, bool] = {}
    for name in ("titanic", "heart", "mds"):
        if (out / f"{name}.jsonl").exists():
            claims |= cohort(out / f"{name}.jsonl", name)
    if (out / "survival.jsonl").exists():
        survival(out / "survival.jsonl")
    print()
    for claim, holds in claims.items():
        print(f"{'holds' if holds else 'FAILS'}  {claim}")
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
