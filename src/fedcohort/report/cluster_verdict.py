"""Findings of a clustering study in plain words: number of groups, agreement, separation.

Groups have no names and no right number, so no gap between bounds is claimed. Fixed rules give the
words. Agreement with pooled data is the adjusted Rand index of the blind patients, with the levels
of Steinley (Psychol. Methods 9, 2004):

    ≥ 0.90  the same groups        ≥ 0.80  much the same
    ≥ 0.65  partly the same        below   not the same

Separation is the silhouette, with the levels of Kaufman & Rousseeuw (Finding Groups in Data, Wiley
1990, ch. 2):

    > 0.70  a strong structure     > 0.50  a reasonable one
    > 0.25  a weak one, which could be artificial     below  no substantial one

Survival is compared by the log-rank test of the blind patients in every fit; a difference is
claimed if all repeats in a setting have p < 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedcohort.report import words
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.words import estimate, fixed, number

#: What the adjusted Rand index is called from so high.
LEVELS = ((0.90, "the same"), (0.80, "much the same"), (0.65, "partly the same"))
#: What a silhouette above is said to find, the highest first, and one that is not.
STRUCTURES = (
    (0.70, "a strong structure"), (0.50, "a reasonable structure"),
    (0.25, "a weak structure, which could be artificial"),
)  # fmt: skip
NO_STRUCTURE = "no substantial structure: the groups are parts of one cloud rather than clouds"
#: A log-rank test below it says that groups differ.
SMALL = 0.05


def leading(run: Run) -> Arm | None:
    """Return the arm the page leads with: most settings answered, then nearest to pooled data.

    Without a pooled bound, the best mean of the leading metric.
    """
    sign = run.known().sign or 1

    def level(arm: Arm, metric: str) -> list[float]:
        found = (run.summary(arm.name, c, metric) for c in run.scenarios)
        return [s.mean for s in found if s is not None]

    def rank(arm: Arm) -> tuple[int, float, float]:
        own, same = level(arm, run.metric), level(arm, "agreement")
        return (
            len(own),
            mean(same) if same else -math.inf,
            sign * mean(own) if own else -math.inf,
        )

    arms = [a for a in run.together if any(gave_groups(run, a, c) for c in run.scenarios)]
    return max(arms, key=rank, default=None)


def gave_groups(run: Run, arm: Arm, scenario: str) -> bool:
    """Return whether an arm gave groups in a setting; most metrics are undefined for a single
    group.
    """
    known = any(run.summary(arm.name, scenario, m) is not None for m in run.metrics)
    return known or groups(run, arm, scenario) > 0


def groups(run: Run, arm: Arm, scenario: str) -> int:
    """Return the number of groups of the first repeat's training patients; 0 if unknown."""
    return sum(
        r.get("n") != 0
        for r in run.rows("clusters")
        if r["arm"] == arm.name and r["scenario"] == scenario
    )


def answer(run: Run, arm: Arm) -> str:
    """Return the headline: number of groups, agreement with pooled data, differences."""
    shown = [c for c in run.scenarios if gave_groups(run, arm, c)]
    said = [_found(run, arm, shown), _same(run, arm, shown)]
    if run.mapping("outcome").get("kind") == "survival":
        said.append(_survival(run, arm, shown))
    elif run.mapping("outcome").get("kind") == "classification":
        said.append(_classes(run, arm, shown))
    else:
        said.append(_level(run, arm, shown))
    return f"{'; '.join(s for s in said if s)}."


def _found(run: Run, arm: Arm, shown: Sequence[str]) -> str:
    """Return how many groups were found, at how many hospitals."""
    counts = sorted({n for c in shown if (n := groups(run, arm, c))})
    sites = sorted({n for c in shown if (n := len(run.sites(c)))})
    many = " to ".join(map(words.spelt, dict.fromkeys((counts[0], counts[-1])))) if counts else ""
    noun = "group" if counts == [1] else "groups"
    found = f"{many} {noun} of patients".strip().capitalize()
    if not sites:
        return found
    where = " to ".join(map(str, dict.fromkeys((sites[0], sites[-1]))))
    return f"{found}, found at {where} {'hospital' if sites == [1] else 'hospitals'}"


def _same(run: Run, arm: Arm, shown: Sequence[str]) -> str:
    """Return whether they are the groups of pooled data, by the lowest mean of the settings."""
    found = [s.mean for c in shown if (s := run.summary(arm.name, c, "agreement"))]
    if not found:
        return ""
    return f"{alike(min(found))} (adjusted Rand {span(found, 2)}) as one table would give"


def alike(value: float) -> str:
    """Return the name of an adjusted Rand index."""
    return next((name for least, name in LEVELS if value >= least), "not the same")


def structure(run: Run, arm: Arm) -> str:
    """Return a sentence on the separation of an arm's groups; nothing without a silhouette.

    A simplified silhouette is mostly higher and has no such levels.
    """
    found = [s.mean for c in run.scenarios if (s := run.summary(arm.name, c, "silhouette"))]
    if not found:
        return ""
    said = next((name for more, name in STRUCTURES if min(found) > more), NO_STRUCTURE)
    return f"Their silhouette is {span(found, 2)}, by Kaufman and Rousseeuw (1990) {said}."


def log_rank(run: Run, arm: Arm, shown: Sequence[str]) -> list[float]:
    """Return the p-values of all repeats in some settings; equal settings count once."""
    each = (tuple(run.values(arm.name, c, "log_rank_p").values()) for c in shown)
    return [p for found in dict.fromkeys(each) for p in found]


def _survival(run: Run, arm: Arm, shown: Sequence[str]) -> str:
    """Return whether the groups differ in survival."""
    found = log_rank(run, arm, shown)
    small = sum(p < SMALL for p in found)
    if not found:
        return ""
    if not small:
        return f"they do not clearly differ in survival (log-rank p {p_values(found)})"
    if small < len(found):
        return (
            f"they differ in survival in {small} of {len(found)} fits (log-rank p < {SMALL}), "
            "though survival was not used"
        )
    return f"they differ in survival (log-rank p {p_values(found)}) though survival was not used"


def p_values(found: Sequence[float]) -> str:
    """Return p-values as a sentence has them: = 0.02, < 0.001, 0.003 to 0.04."""
    low, high = (words.p_value(p) for p in (min(found), max(found)))
    if low == high:
        return high if high.startswith("<") else f"= {high}"
    return f"up to {high}" if low.startswith("<") else f"{low} to {high}"


def _classes(run: Run, arm: Arm, shown: Sequence[str]) -> str:
    """Return how far the groups are the classes that judge them."""
    right, rand = (
        [s.mean for c in shown if (s := run.summary(arm.name, c, m))] for m in ("accuracy", "ari")
    )
    told = f" (adjusted Rand {span(rand, 2)})" if rand else ""
    if right:
        low, high = (words.fixed(100 * v, 0) for v in (min(right), max(right)))
        share = f"{low}–{high} %" if low != high else f"{low} %"
        return f"they are the known classes for {share} of patients{told} though none was used"
    return f"beside the known classes{told}, which were not used" if rand else ""


def _level(run: Run, arm: Arm, shown: Sequence[str]) -> str:
    """Return the leading metric."""
    known = run.known()
    found = [s.mean for c in shown if (s := run.summary(arm.name, c))]
    return f"{words.inline(known.label)} {span(found, known.digits)}" if found else ""


def span(values: Sequence[float], digits: int) -> str:
    """Return the range of values, or the one value if they print alike."""
    low, high = (fixed(v, digits) for v in (min(values), max(values)))
    if low == high:
        return low
    return f"{low} to {high}" if "−" in low + high else f"{low}–{high}"


def sentence(run: Run, arm: Arm, scenario: str) -> str:
    """Return the findings in one setting, with numbers."""
    if not gave_groups(run, arm, scenario):
        why = "; ".join(r.rstrip(".") for r in run.failures(arm.name, scenario))
        return f"failed: {why}." if why else "no value."
    known = run.known()
    n = groups(run, arm, scenario)
    said = [f"{words.of(n, 'group')}{_sizes(run, arm, scenario)}"] if n else []
    said += _agreement(run, arm, scenario)
    if (found := run.summary(arm.name, scenario)) is not None and not known.is_p:
        value = estimate(found.mean, found.low, found.high, known.digits)
        said.append(f"{words.inline(known.label)} {value}")
    for name in ("c_index", "accuracy", "ari"):
        s = run.summary(arm.name, scenario, name) if name != run.metric else None
        if s is not None:
            label = words.inline(run.known(name).label)
            said.append(f"{label} {estimate(s.mean, s.low, s.high)}")
    if p := log_rank(run, arm, [scenario]):
        over = f" over {words.of(len(p), 'repeat')}" * (len(p) > 1)
        said.append(f"log-rank p {p_values(p)}{over}")
    return f"{'; '.join(said)}."


def _sizes(run: Run, arm: Arm, scenario: str) -> str:
    """Return the sizes of the groups in brackets, where none is hidden."""
    found = [
        number(r.get("n"))
        for r in run.rows("clusters")
        if r["arm"] == arm.name and r["scenario"] == scenario and r.get("n") != 0
    ]
    if len(found) < 2 or any(n != n for n in found):
        return ""
    sizes = words.listed([words.count(n) for n in sorted(found, reverse=True)])
    return f" (of {sizes} training patients in the first repeat)"


def _agreement(run: Run, arm: Arm, scenario: str) -> list[str]:
    """Return the agreement with pooled data, beside that of a hospital alone."""
    found = run.summary(arm.name, scenario, "agreement")
    if found is None:
        return []
    values = list(run.values(arm.name, scenario, "agreement").values())
    spread = max(values) > min(values)
    over = f"; {span(values, 2)} over {len(values)} repeats" * spread
    alone = run.summary(run.lower.name, scenario, "agreement") if run.lower else None
    beside = f", a hospital alone {fixed(alone.mean, 2)}" if alone else ""
    return [
        f"{alike(found.mean)} groups as all data in one place (adjusted Rand "
        f"{fixed(found.mean, 2)}{over}{beside})"
    ]


def caveats() -> list[str]:
    """Return the caveats of clusters."""
    return [
        "A method returns as many groups as it is asked for, whether they exist or not: read the "
        "silhouette and the map first. Agreement of all hospitals does not prove that the groups "
        "exist in nature.",
        "The method numbers the clusters: cluster 0 of one arm or setting need not be cluster 0 "
        "of another.",
    ]
