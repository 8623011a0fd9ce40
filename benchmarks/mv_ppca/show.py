"""Tables and claims of `run.py`'s results.

    python benchmarks/mv_ppca/show.py --out DIR

Prints Markdown, and leaves with 1 where a claim does not hold:

1. simulated rows, noise "paper": the test error of multi-view PPCA over that of the same method
   with all rows at one place is at most the paper's own such ratio, or 1.02 where that is lower (a
   ratio below 1 is one to a fit of one place that was not at its maximum).
2. G/K: the discriminant's accuracy in the latent space is above 0.78.
3. multi-view PPCA's test error is below that of VAE and mc-VAE as the paper trains them, in every
   scenario, over the folds that both have.
4. WAIC chooses 5 latent dimensions in at least 9 of 10 tables: with a noise of each column, and
   with one of each view of rows as they are drawn.
5. real tables: missing views are filled better than by columns' means, and at most 1.05 times as
   far off as with all rows at one place (root mean square, mean of views).
6. a round takes at most 1.5 times as long with the most rows as with the fewest; the first call at
   most grows as n to the 1.2, between the two largest tables.
7. private fits by one noisy sum: at ε 1 and above (G/K: 10) none is refused, and the discriminant's
   accuracy is at most 0.03 below that without noise; at twice that ε and above errors of complete
   test rows are below those of the columns' means.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

#: Supplementary table 6 (SD): scenario, sites, method → MAE of training rows, of test rows, and
#: accuracy in the latent space.
PAPER = """
IID 1 ppca .0124 .0405 1
IID 1 vae .0851 .1011 1
IID 1 mcvae .1236 .1382 1
IID 3 ppca .0320 .0373 1
IID 3 vae .0683 .0702 1
IID 3 mcvae .1172 .1146 1
IID 6 ppca .0422 .0371 1
IID 6 vae .0769 .0680 1
IID 6 mcvae .1295 .1134 1
G 3 ppca .0432 .0433 .9930
G 3 vae .0787 .0698 .9835
G 3 mcvae .1562 .1497 .9732
G 6 ppca .0538 .0420 .9995
G 6 vae .0891 .0685 .9918
G 6 mcvae .1758 .1495 .9607
K 3 ppca .0320 .0455 1
K 6 ppca .0402 .0448 1
G/K 3 ppca .0395 .0567 .7812
G/K 6 ppca .0499 .0575 .7785
"""
#: The order of lines.
SCENARIOS = ("IID", "G", "K", "G/K")
METHODS = (
    "ppca", "ppca view", "ppca paper", "one place", "factor analysis", "ppca, one place",
    "vae", "mcvae", "vae converged", "mcvae converged", "mean", "ridge", "mice",
)  # fmt: skip
OWN, ONE_PLACE = "ppca", "ppca, one place"
LEAST_EPSILON, LOST = {"IID": 1.0, "G/K": 10.0}, 0.03
#: Rounds whose standard deviations are printed.
SHOWN = (1, 5, 20, 50, 100)
LEAST_RATIO, ACCURACY, CHOSEN, FEDERATED, ROUND, GROWTH = 1.02, 0.78, 0.9, 1.05, 1.5, 1.2


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Return finished configurations by part, a row each."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = pd.DataFrame([row["of"] | {k: v for k, v in row.items() if k != "of"} for row in rows])
    parts = {str(part): rows.dropna(axis=1, how="all") for part, rows in found.groupby("part")}
    return {
        part: rows.astype({"sites": int}) if "sites" in rows else rows
        for part, rows in parts.items()
    }


def paper() -> dict[tuple[str, int, str], tuple[float, float, float]]:
    """Return table 6 by scenario, sites and method."""
    lines = [line.split() for line in PAPER.strip().splitlines()]
    return {(s, int(c), m): (float(a), float(b), float(d)) for s, c, m, a, b, d in lines}


def spread(values: pd.Series, digits: int = 4) -> str:
    """Return mean ± standard deviation."""
    known = values.dropna()
    if known.empty:
        return "–"
    sd = f" ± {known.std():.{digits}f}" if len(known) > 1 else ""
    return f"{known.mean():.{digits}f}{sd}"


def head(*names: str) -> None:
    """Print the head of a table."""
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")


def line(*cells: object) -> None:
    """Print a line of a table."""
    print("| " + " | ".join(map(str, cells)) + " |")


def in_order(found: pd.DataFrame) -> pd.DataFrame:
    """Sort by scenario, sites and method."""
    ranks = {"scenario": SCENARIOS, "sites": None, "method": METHODS}
    return found.sort_values(
        list(ranks), kind="stable",
        key=lambda v: v if ranks[v.name] is None else v.map(ranks[v.name].index),
    )  # fmt: skip


def with_ratio(found: pd.DataFrame) -> pd.DataFrame:
    """Add the test error over that of multi-view PPCA with complete rows at one place."""
    key = ["noise", "repeat", "fold"]
    base = found[(found.sites == 1) & (found.method == "ppca")].set_index(key).test
    joined = found.join(base.rename("base"), on=key)
    return joined.assign(ratio=joined.test / joined.base)


def table(found: pd.DataFrame) -> list[str]:
    """Print table 6; return claims 1 to 3 that are broken."""
    theirs, found = paper(), with_ratio(found)
    for noise, rows in in_order(found).groupby("noise"):
        print(f'\n### Simulated rows, noise "{noise}": ours / paper, mean ± sd over folds\n')
        head(
            "scenario", "sites", "method", "folds", "MAE train", "MAE test", "ratio to one place",
            "accuracy", "MAE of lacking views", "accuracy, views lacking", "rounds", "CPU s",
        )  # fmt: skip
        for (scenario, sites, method), one in rows.groupby(
            ["scenario", "sites", "method"], sort=False
        ):
            known = theirs.get((scenario, sites, str(method).split()[0]))
            alone = theirs["IID", 1, "ppca"][1]
            told = ["", "", "", ""]
            if known is not None and noise == "paper":
                told = [f" / {v:.4f}" for v in (*known[:2], known[1] / alone, known[2])]
            cells = [
                spread(one[name], digits) + said
                for name, digits, said in zip(
                    ("train", "test", "ratio", "accuracy"), (4, 4, 3, 3), told, strict=True
                )
            ]
            line(
                scenario, sites, method, len(one), *cells, spread(one.lacking),
                spread(one.accuracy_lacking, 3), spread(one.rounds, 0), spread(one.cpu, 2),
            )  # fmt: skip
    return claims(found[found.noise == "paper"], theirs)


def claims(found: pd.DataFrame, theirs: dict[tuple[str, int, str], tuple[float, ...]]) -> list[str]:
    """Return claims 1 to 3 that are broken by rows with the paper's noise."""
    mean = found.groupby(["scenario", "sites", "method"])[["test", "ratio", "accuracy"]].mean()
    alone = theirs["IID", 1, "ppca"][1]
    broken: list[str] = []
    for (scenario, sites, method), (_, test, _) in theirs.items():
        if (scenario, sites, "ppca") not in mean.index:
            continue
        ours = mean.loc[(scenario, sites, "ppca")]
        where = f"{scenario}, {sites} sites"
        if method == "ppca" and ours.ratio > (most := max(LEAST_RATIO, test / alone)):
            broken.append(f"{where}: ratio to one place {ours.ratio:.3f}, claimed {most:.3f}")
        if method == "ppca" and scenario == "G/K" and not ours.accuracy > ACCURACY:
            broken.append(f"{where}: accuracy {ours.accuracy:.3f}")
        other = (scenario, sites, method)
        if method == "ppca" or other not in mean.index:
            continue
        both = _same_folds(found, scenario, sites, method)
        if not both["ppca"] < both[method]:
            broken.append(f"{where}: test error {both['ppca']:.4f}, {method} {both[method]:.4f}")
    return broken


def _same_folds(found: pd.DataFrame, scenario: str, sites: int, method: str) -> pd.Series:
    """Return the mean test errors of ``ppca`` and another method over the folds that both have."""
    rows = found[(found.scenario == scenario) & (found.sites == sites)]
    wide = rows.pivot_table(index=["repeat", "fold"], columns="method", values="test")
    return wide[["ppca", method]].dropna().mean()


def prox(found: pd.DataFrame) -> list[str]:
    """Print FedProx."""
    print("\n### FedProx, scenario G: mean ± sd over folds\n")
    head("method", "sites", "λ", "folds", "MAE train", "MAE test", "accuracy", "CPU s")
    for key, one in found.groupby(["method", "sites", "mu"]):
        cells = [spread(one[name]) for name in ("train", "test", "accuracy")]
        line(*key, len(one), *cells, spread(one.cpu, 1))
    return []


def waic(found: pd.DataFrame) -> list[str]:
    """Print which q was chosen; return claim 4 where it is broken."""
    print("\n### q by WAIC, three sites: in how many tables each was chosen\n")
    columns = list(range(2, 9))
    head("noise", "scale", "σ of each", "tables", *(f"q {q}" for q in columns), "least WAIC at 5",
         "CPU s")  # fmt: skip
    broken: list[str] = []
    for (noise, scale, shared), one in found.groupby(["noise", "scale", "shared"], sort=False):
        counts = [int((one.q == q).sum()) for q in columns]
        least = int((one.least == 5).sum())
        line(noise, scale, shared, len(one), *(c or "" for c in counts), least, spread(one.cpu, 1))
        share = float((one.q == 5).mean())
        if (scale == "none" or shared == "column") and share < CHOSEN:
            broken.append(f"WAIC, {noise} noise, scale {scale}, by {shared}: q 5 in {share:.0%}")
    return broken


def real(found: pd.DataFrame) -> list[str]:
    """Print errors of filled views; return claim 5 where it is broken."""
    broken: list[str] = []
    for name, rows in in_order(found).groupby("data"):
        rows = rows.dropna(axis=1, how="all")
        views = [c.removeprefix("rmse ") for c in rows if c.startswith("rmse ")]
        rows = rows.assign(rmse=rows[[f"rmse {v}" for v in views]].mean(axis=1))
        print(f"\n### {name}: a view filled from the others, MAE · RMSE in sd\n")
        head("scenario", "sites", "method", "folds", *views, "RMSE, mean", "q", "CPU s")
        for (scenario, sites, method), one in rows.groupby(
            ["scenario", "sites", "method"], sort=False
        ):
            cells = [f"{one[f'mae {v}'].mean():.3f} · {one[f'rmse {v}'].mean():.3f}" for v in views]
            q = spread(one.q, 1) if "q" in one else "–"
            line(scenario, sites, method, len(one), *cells, spread(one.rmse, 3), q,
                 spread(one.cpu, 1))  # fmt: skip
        mean = rows.groupby(["scenario", "sites", "method"]).rmse.mean().unstack()
        if OWN not in mean:
            continue
        for other, most in (("mean", 1.0), (ONE_PLACE, FEDERATED)):
            if other in mean:
                ratio = (mean[OWN] / mean[other]).dropna()
                broken += [
                    f"{name}, {scenario}, {sites} sites: RMSE {value:.3f} times that of {other}"
                    for (scenario, sites), value in ratio[ratio > most].items()
                ]
    return broken


def speed(found: pd.DataFrame) -> list[str]:
    """Print times; return claim 6 where it is broken."""
    print("\n### CPU seconds, three sites, 33 columns, q 5: least of the repeats\n")
    names = ("look", "first", "round", "whole")
    head("rows", "counting", "first round", "a later round", "whole fit, with checks")
    least = found.groupby("n")[list(names)].min()
    for n, row in least.iterrows():
        line(f"{n:,.0f}", *(f"{row[name]:.4f}" for name in names))
    if len(least) < 2:
        return []
    broken: list[str] = []
    more = least["round"].iloc[-1] / least["round"].iloc[0]
    if more > ROUND:
        broken.append(f"a round of {least.index[-1]:.0f} rows takes {more:.1f} times as long")
    (few, many), calls = least.index[-2:], least["first"] + least["look"]
    growth = math.log(calls[many] / calls[few]) / math.log(many / few)
    if growth > GROWTH:
        broken.append(f"the first call grows as n to the {growth:.2f}")
    return broken


def private(found: pd.DataFrame) -> list[str]:
    """Print private fits by the ε of all that they release; return claim 7 where it is broken."""
    broken: list[str] = []
    if "refused" not in found:
        found = found.assign(refused=None)
    for (name, scenario), rows in found.groupby(["data", "scenario"], sort=False):
        plain = rows[rows.route == "no noise"].set_index("repeat")
        epsilons = sorted(rows.epsilon.dropna().unique())
        rows = rows.assign(
            ratio=rows.test / rows.repeat.map(plain.test),
            lack=rows.lacking / rows.repeat.map(plain.lacking),
        )
        print(
            f"\n### Private fits: {name}, {scenario}, 3 sites: MAE of test rows, and of views that "
            f"they lack, over those without noise ({plain.test.mean():.4f}, "
            f"{plain.lacking.mean():.4f}) · accuracy\n"
        )
        head("route", "repeats", *(f"ε {e:g}" for e in epsilons))
        line("no noise", len(plain), f"1 · 1 · {plain.accuracy.mean():.3f}")
        for route, what in (("means", ("ratio", "lack")), ("random plane", ("accuracy",))):
            one = rows[rows.route == route]
            line(route, len(one), " · ".join(f"{one[w].mean():.2f}" for w in what))
        noisy = rows[rows.epsilon.notna()].assign(clip=rows.get("clip", math.nan))
        for (route, r, clip, secure), one in noisy.fillna({"clip": 0.0}).groupby(
            ["route", "dp_rounds", "clip", "secure"], sort=False
        ):
            what = [route]
            what += [f"{r:.0f} rounds"] if route == "differences" else []
            what += [f"clip {clip:g}"] if clip else []
            what += ["sums not masked"] if secure == "false" else []
            line(", ".join(what), one.repeat.nunique(), *(_budget(one, e) for e in epsilons))
        broken += _claims(f"{name}, {scenario}", rows, plain, LEAST_EPSILON[str(scenario)])
    _rounds(found)
    return broken


def _budget(rows: pd.DataFrame, epsilon: float) -> str:
    """Return means of fits at one ε, and how many were refused."""
    one = rows[rows.epsilon == epsilon]
    if one.empty:
        return "–"
    refused = int(one.refused.notna().sum())
    if refused == len(one):
        return "refused"
    told = f"{one.ratio.mean():.2f} · {one.lack.mean():.2f} · {one.accuracy.mean():.3f}"
    return told + (f" ({refused} refused)" if refused else "")


def _claims(where: str, rows: pd.DataFrame, plain: pd.DataFrame, from_: float) -> list[str]:
    """Return claim 7 where it is broken."""
    broken: list[str] = []
    noisy = rows[(rows.route == "moments") & (rows.secure == "auto")]
    means = rows[rows.route == "means"].test.mean()
    for epsilon, one in noisy[noisy.epsilon >= from_].groupby("epsilon"):
        where_at = f"{where}, moments, ε {epsilon:g}"
        if one.refused.notna().any():
            broken.append(f"{where_at}: {one.refused.notna().sum()} fits refused")
        if not one.accuracy.mean() >= plain.accuracy.mean() - LOST:
            broken.append(
                f"{where_at}: accuracy {one.accuracy.mean():.3f}, without noise "
                f"{plain.accuracy.mean():.3f}"
            )
        if epsilon >= 2 * from_ and not one.test.mean() < means:
            broken.append(f"{where_at}: error {one.test.mean():.4f}, columns' means {means:.4f}")
    return broken


def _rounds(found: pd.DataFrame) -> None:
    """Print the global standard deviations by round, as figure 7 of the paper has them."""
    rows = found[found.get("sd", pd.Series(dtype=object)).notna()]
    rows = rows[(rows.route == "no noise") | (rows.dp_rounds == rows.dp_rounds.max())]
    rows = rows[rows.data == rows.data.iloc[0]] if len(rows) else rows
    rows = rows[rows.sd.map(bool)] if len(rows) else rows
    if rows.empty:
        return
    shown = sorted({int(r) for sd in rows.sd for r in sd if int(r) in SHOWN})
    print(
        f"\n### {rows.data.iloc[0]}: global standard deviations by round, mean of repeats: μ · W\n"
    )
    head("scenario", "route", "ε", "rounds taken", *(f"round {r}" for r in shown))
    for (scenario, route, epsilon), one in rows.groupby(
        ["scenario", "route", "epsilon"], sort=False, dropna=False
    ):
        cells: list[str] = []
        for r in shown:
            at = [sd[str(r)] for sd in one.sd if str(r) in sd]
            n = max(len(at), 1)
            mu, w = (sum(sd[name] for sd in at) / n for name in ("sd_mu", "sd_w"))
            cells.append(f"{mu:.2g} · {w:.2g}" + (f" ({n})" if n < len(one) else "") if at else "–")
        taken = max(max(map(int, sd)) for sd in one.sd)
        line(scenario, route, "–" if math.isnan(epsilon) else f"{epsilon:g}", taken, *cells)


def budget(found: pd.DataFrame) -> list[str]:
    """Print what the paper's budget composes to, and what ours is of one parameter and round."""
    print("\n### The paper's ε 10 for each parameter in each round, composed\n")
    head("rounds", "noise by", "z", "added up: ε, δ", "at δ", "ε by RDP", "ε by PLD")
    for _, row in found[found.of == "paper"].iterrows():
        line(
            f"{row.dp_rounds:.0f}", row.rule.replace("_", " "), f"{row.z:.3f}",
            f"{row.basic:,.0f}, {row.basic_delta:g}", f"{row.delta:g}", f"{row.rdp:,.0f}",
            f"{row.pld:,.0f}",
        )  # fmt: skip
    own = found[found.of == "ours"]
    print(
        "\n### ε of one parameter in one round of `differences`: Gaussian (μ or W) · Laplace (σ²)\n"
    )
    epsilons = sorted(own.epsilon.unique())
    head("rounds", *(f"composed ε {e:g}" for e in epsilons))
    for r, rows in own.groupby("dp_rounds"):
        at = rows.set_index("epsilon")
        line(f"{r:.0f}", *(
            f"{at.gaussian[e]:.2g} · {at.laplace[e]:.2g}" if e in at.index else "–"
            for e in epsilons
        ))  # fmt: skip
    return []


PARTS: dict[str, Callable[[pd.DataFrame], list[str]]] = {
    "table": table, "prox": prox, "waic": waic, "real": real, "speed": speed, "private": private,
    "budget": budget,
}  # fmt: skip


def main() -> int:
    """Print what there is; return whether a claim is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parts = read(parser.parse_args().out / "runs.jsonl")
    broken = [text for name, show in PARTS.items() if name in parts for text in show(parts[name])]
    print("\n" + ("\n".join(broken) or "all claims hold"))
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
