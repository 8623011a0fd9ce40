"""Eight faults planted in 20 random sites: how many `feedback` finds, and what it names besides.

    OMP_NUM_THREADS=1 python benchmarks/feedback/run.py [--seeds 20] [--clean] [--show] [--first 0]

Each seed draws 20 sites of 60 to 2,000 rows (uniform on the log scale) with honest differences:
means by 0.3 standard deviations, spreads by 10 %, levels and prevalence by 0.4 on the logit scale,
missing shares of 0 to 15 %, coefficients by 0.15. There are 12 numbers with the usual means and
spreads of clinical tables, correlated by three factors, five of them skewed; two yes/no columns,
two categories; and a yes/no outcome with an AUC of about 0.8. Then eight of the sites, drawn at
random, each get one fault, in a column drawn at random. Accepted: all of 8 found in each seed, and
named by rule and column; at most one other finding at any site.

`--heart FILE` plants the same faults, one at a time, in the table of four hospitals instead;
`--limits` plants smaller and smaller ones.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter

import numpy as np
import pandas as pd

import fedcohort as fc

FAULTS = (
    "shift", "unit", "swapped", "level", "copies", "half empty", "constant", "flipped label",
)  # fmt: skip
#: name → mean, sd, whether it is skewed, factor of its other unit.
NUMBERS = {
    "age": (62.0, 13.0, False, 12.0),
    "heart_rate": (82.0, 16.0, False, 0.0),
    "sbp": (128.0, 19.0, False, 1 / 10.0),
    "dbp": (76.0, 11.0, False, 1 / 10.0),
    "resp_rate": (18.0, 4.0, False, 0.0),
    "temperature": (37.0, 0.6, False, -1.0),
    "weight": (78.0, 15.0, False, 2.2046),
    "height": (170.0, 9.5, False, 1 / 2.54),
    "glucose": (6.4, 2.0, True, 18.02),
    "creatinine": (95.0, 40.0, True, 1 / 88.4),
    "cholesterol": (5.1, 1.1, True, 38.67),
    "haemoglobin": (13.2, 1.7, False, 10.0),
}
LEVELS = {"smoker": ("never", "past", "current"), "class": ("I", "II", "III", "IV", "other")}
SITES, ROWS = 20, (60, 2000)


def sites_of(rng):
    """Return 20 honest sites."""
    names = list(NUMBERS)
    loadings = rng.normal(0, 0.45, (len(names), 3))
    beta = rng.normal(0, 0.45, len(names))
    out = {}
    base = {k: rng.normal(0, 0.6, len(v)) for k, v in LEVELS.items()}
    for i in range(SITES):
        n = int(np.exp(rng.uniform(*np.log(ROWS))))
        own = rng.normal(0, 0.3, len(names))
        spread = np.exp(rng.normal(0, 0.1, len(names)))
        f = rng.normal(size=(n, 3))
        rest = np.sqrt(np.maximum(1 - (loadings**2).sum(1), 0.2))
        e = f @ loadings.T + rng.normal(size=(n, len(names))) * rest
        z = own + spread * e
        table = {}
        for j, (name, (mean, sd, skewed, _)) in enumerate(NUMBERS.items()):
            x = mean * np.exp(z[:, j] * sd / mean) if skewed else mean + sd * z[:, j]
            table[name] = np.round(x, 1)
        flags = [rng.random(n) < sigmoid(-0.8 + 0.4 * rng.normal() + 0.7 * f[:, k]) for k in (0, 1)]
        table["diabetes"], table["male"] = flags[0].astype(float), flags[1].astype(float)
        for k, levels in LEVELS.items():
            logits = base[k] + rng.normal(0, 0.4, len(levels))
            if "other" in levels:
                logits[-1] = -np.inf
            share = np.exp(logits) / np.exp(logits).sum()
            table[k] = np.array(levels, object)[rng.choice(len(levels), n, p=share)]
        mine = beta + rng.normal(0, 0.15, len(beta))
        score = e @ mine + 0.7 * flags[0] - 0.8 + rng.normal(0, 0.4)
        table["death"] = (rng.random(n) < sigmoid(score)).astype(float)
        frame = pd.DataFrame(table)
        for name in (*names, *LEVELS):
            gone = rng.random(n) < rng.uniform(0, 0.15)
            frame.loc[gone, name] = np.nan if name in NUMBERS else None
        out[f"site{i:02d}"] = frame
    return out


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def plant(frame, fault, rng, numbers=None, level=("class", "other"), label="death"):
    """Return a table with one fault, and the columns that it is in."""
    frame = frame.copy()
    numbers = NUMBERS if numbers is None else numbers
    names = list(numbers)
    n = len(frame)
    name = str(rng.choice(names))
    if fault == "shift":
        sd = numbers[name][1]
        frame[name] += rng.choice([-1, 1]) * rng.uniform(3, 6) * sd
    elif fault == "unit":
        name = str(rng.choice([k for k in names if numbers[k][3]]))
        factor = numbers[name][3]
        frame[name] = frame[name] * 1.8 + 32 if factor < 0 else frame[name] * factor
    elif fault == "swapped":
        other = str(rng.choice([k for k in names if k != name]))
        frame[[name, other]] = frame[[other, name]].to_numpy()
        return frame, {name, other}
    elif fault == "level":
        name = level[0]
        frame.loc[rng.random(n) < rng.uniform(0.15, 0.4), name] = level[1]
    elif fault == "copies":
        twice = rng.choice(n, round(rng.uniform(0.1, 0.3) * n), replace=False)
        return pd.concat([frame, frame.iloc[twice]], ignore_index=True), {""}
    elif fault == "half empty":
        frame.loc[rng.random(n) < rng.uniform(0.5, 0.7), name] = np.nan
    elif fault == "constant":
        frame[name] = numbers[name][0]
    else:
        frame[label] = 1 - frame[label]
        return frame, {label}
    return frame, {name}


def look(frames, outcome, dictionary=None):
    """Return the remarks by site, and the seconds."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fed = fc.simulate(frames, outcome=outcome, dictionary=dictionary)
        model = fc.fit("feedback", fed).model
    return model, time.perf_counter() - start


def judge(model, planted):
    """Return which faults were found, and the other findings by site."""
    found, false = {}, Counter(dict.fromkeys(model.sites, 0))
    texts = []
    for site, (fault, columns) in planted.items():
        found[fault] = False
        for r in model.of(site):
            named = {r.column, r.about} & columns and (r.rule != "swapped" or len(columns) == 2)
            found[fault] |= r.rule == fault and bool(named)
    for r in model.remarks:
        fault, columns = planted.get(r.site, ("", set()))
        mine = r.rule == fault and {r.column, r.about} & columns
        if r.rule != "unrecorded" and not mine:
            false[r.site] += 1
            texts.append(r.line)
    return found, false, texts


#: The table of four hospitals: name → mean, sd, _, factor of its other unit.
HEART = {
    "age": (53.0, 9.5, False, 12.0),
    "trestbps": (132.0, 19.0, False, 0.1),
    "thalach": (138.0, 26.0, False, 0.0),
    "oldpeak": (0.9, 1.1, False, 10.0),
}
HEART_DICTIONARY = {
    "variables": {
        "age": "number",
        "sex": "binary",
        "cp": {"type": "category", "levels": [1, 2, 3, 4, 5]},
        "trestbps": "number",
        "chol": "number",
        "fbs": "binary",
        "restecg": {"type": "category", "levels": [0, 1, 2]},
        "thalach": "number",
        "exang": "binary",
        "oldpeak": "number",
        "slope": {"type": "category", "levels": [1, 2, 3]},
        "ca": "number",
        "thal": {"type": "category", "levels": [3, 6, 7]},
        "y": "binary",
    }
}


def heart(args):
    """Compare the four hospitals as they are, and with each fault at each of them in turn."""
    table = pd.read_csv(args.heart)
    columns = list(HEART_DICTIONARY["variables"])
    frames = {str(c): f[columns].reset_index(drop=True) for c, f in table.groupby("centre")}
    clean, _ = look(frames, fc.Binary("y"), HEART_DICTIONARY)
    print("as they are:", *[f"    {r.line}" for r in clean.remarks], sep="\n")
    before = {(r.site, r.rule, r.column) for r in clean.remarks}
    total, tried, more = Counter(), Counter(), 0
    for seed in range(args.first, args.first + args.seeds):
        for fault in FAULTS:
            for site in sorted(frames):
                rng = np.random.default_rng((seed, FAULTS.index(fault), len(frames[site])))
                there, named = plant(frames[site], fault, rng, HEART, ("cp", 5), "y")
                model, _ = look({**frames, site: there}, fc.Binary("y"), HEART_DICTIONARY)
                new = [r for r in model.remarks if (r.site, r.rule, r.column) not in before]
                hit = [r for r in new if r.site == site and r.rule == fault]
                hit = [r for r in hit if {r.column, r.about} & named]
                total[fault, site] += bool(hit)
                tried[fault, site] += 1
                rest = [r for r in new if r not in hit and r.rule != "unrecorded"]
                more += len(rest)
                if args.show and (rest or not hit):
                    print(seed, fault, site, sorted(named), [r.line for r in rest])
    print("\n| fault |", " | ".join(f"{s} ({len(frames[s])})" for s in sorted(frames)), "|")
    print("|---" * (1 + len(frames)) + "|")
    for fault in FAULTS:
        cells = (f"{total[fault, s]}/{tried[fault, s]}" for s in sorted(frames))
        print(f"| {fault} |", " | ".join(cells), "|")
    print(f"\nother findings that were not there before: {more} in {sum(tried.values())} runs")
    return 0


def limits(args):
    """Plant faults of several sizes, one a site, and count which are found."""
    asked = [("shift", v) for v in (1.0, 1.5, 2.0, 3.0)]
    asked += [("half empty", v) for v in (0.3, 0.4, 0.5)] + [("copies", v) for v in (0.02, 0.05)]
    asked += [("level", v) for v in (0.03, 0.1)]
    total = Counter()
    for seed in range(args.first, args.first + args.seeds):
        rng = np.random.default_rng((seed, 9))
        frames, planted = sites_of(rng), {}
        for site, (fault, size) in zip(rng.permutation(sorted(frames)), asked, strict=False):
            frame, name, n = frames[site], str(rng.choice(list(NUMBERS))), len(frames[site])
            if fault == "shift":
                frame[name] += size * NUMBERS[name][1]
            elif fault == "half empty":
                frame.loc[rng.random(n) < size, name] = np.nan
            elif fault == "level":
                name = "class"
                frame.loc[rng.random(n) < size, name] = "other"
            else:
                name = ""
                twice = rng.choice(n, round(size * n), replace=False)
                frame = pd.concat([frame, frame.iloc[twice]], ignore_index=True)
            frames[site], planted[str(site)] = frame, (fault, size, name)
        model, _ = look(frames, fc.Binary("death"))
        for site, (fault, size, name) in planted.items():
            hit = any((r.rule, r.column) == (fault, name) for r in model.of(site))
            total[fault, size] += hit
    print("| fault | size | found |\n|---|---|---|")
    for fault, size in asked:
        print(f"| {fault} | {size:g} | {total[fault, size]}/{args.seeds} |")
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--heart", default="")
    parser.add_argument("--limits", action="store_true")
    args = parser.parse_args()
    if args.limits:
        return limits(args)
    if args.heart:
        return heart(args)
    total, alarms, seconds = Counter(), [], []
    for seed in range(args.first, args.first + args.seeds):
        rng = np.random.default_rng((seed, 8))
        frames = sites_of(rng)
        planted = {}
        if not args.clean:
            for site, fault in zip(rng.permutation(sorted(frames))[:8], FAULTS, strict=True):
                frames[site], columns = plant(frames[site], fault, rng)
                planted[str(site)] = fault, columns
        model, took = look(frames, fc.Binary("death"))
        found, false, texts = judge(model, planted)
        total.update(f for f, ok in found.items() if ok)
        alarms += list(false.values())
        seconds.append(took)
        missed = "".join(
            f"; missed {f} of {sorted(planted[s][1])} at {s} ({len(frames[s])} rows)"
            for s, (f, _) in planted.items()
            if not found[f]
        )
        print(
            f"seed {seed}: {sum(found.values())}/{len(found)} found, most other findings at a "
            f"site {max(false.values())}, in all {sum(false.values())}, {took:.1f} s{missed}",
            flush=True,
        )
        if args.show and texts:
            print(*[f"    {t}" for t in texts], sep="\n")
    if not args.clean:
        print("\n| fault | found |\n|---|---|")
        for fault in FAULTS:
            print(f"| {fault} | {total[fault]}/{args.seeds} |")
    planted_in_all = 0 if args.clean else 8 * args.seeds
    print(
        f"\nfound {sum(total.values())} of {planted_in_all}; other findings: {sum(alarms)} at "
        f"{len(alarms)} sites, most at one site {max(alarms)}; {np.median(seconds):.1f} s a "
        f"federation"
    )
    fine = sum(total.values()) == planted_in_all
    return 0 if fine and max(alarms) <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
