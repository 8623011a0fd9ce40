"""Findings on latent coordinates, and the number of latent dimensions of each arm.

One error is lower than another if the interval of their difference, paired by repeat (eq. (2) of
`share`), lies below 0. More dimensions reconstruct rows better whether or not they mean anything.
So of arms that differ in their number alone, one that chose it by itself leads the page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from fedcohort.report import history, words
from fedcohort.report.cluster_verdict import span
from fedcohort.report.run import Arm, Run
from fedcohort.report.share import Mean
from fedcohort.report.words import number

BACK, FILLED = "reconstruction_mae", "imputation_mae"
#: Errors from this size on have two decimals in a sentence.
PLAIN = 0.1
#: An arm is almost as good as pooled data if it clearly closes such a share of the gap.
NEAR = 0.9


def answer(run: Run, arm: Arm) -> str:
    """Return the headline: errors of reconstruction and of a filled-in view.

    Empty if neither was measured.
    """
    back, filled = _shown(run, arm, BACK), _shown(run, arm, FILLED)
    said = [_back(run, arm, back)] if back else []
    said += [_filled(run, arm, filled, first=not back)] if filled else []
    return f"Training together {', and '.join(said)}." if said else ""


def _shown(run: Run, arm: Arm, metric: str) -> list[str]:
    """Return the settings in which an arm has a metric."""
    return [c for c in run.scenarios if run.summary(arm.name, c, metric) is not None]


def _back(run: Run, arm: Arm, shown: Sequence[str]) -> str:
    """Return the error of reconstruction, beside the bounds."""
    own, alone, pooled = _levels(run, (arm, run.lower, run.upper), shown, BACK)
    error = f"error {own}{f' against {pooled}' * bool(pooled)}{run.known(BACK).after}"
    error += f"; a hospital alone {alone}" if alone else ""
    return f"reconstructs patients {_beside(run, arm, shown, BACK)}({error})"


def _beside(run: Run, arm: Arm, shown: Sequence[str], metric: str) -> str:
    """Return an arm's error compared with that of pooled data."""
    upper = run.upper
    if upper is None:
        return ""
    found = [run.difference(arm.name, upper.name, c, metric) for c in shown]
    found = [d for d in found if d.value == d.value]
    if not found:
        return ""
    if any(d.low != d.low for d in found):
        return "in too few runs to be compared with one table "
    behind, ahead = (sum(d.side == side for d in found) for side in (-1, 1))
    n = len(found)
    if ahead == n:
        return "better than one table "
    if not behind:
        return "as well as one table "
    far = [c for c in shown if not _near(run, arm, c, metric)]
    if not far:
        return "almost as well as one table "
    if behind == n:
        return "not as well as one table "
    return f"as well as one table in {n - behind} of {n} settings "


def _near(run: Run, arm: Arm, scenario: str, metric: str) -> bool:
    """Return whether an arm clearly closes most of the gap to pooled data, or is not behind."""
    upper = run.upper
    if upper is None or run.difference(arm.name, upper.name, scenario, metric).side >= 0:
        return True
    share = run.share(arm.name, scenario) if metric == run.metric else None
    return share is not None and share.gap.side > 0 and share.low >= NEAR


def _filled(run: Run, arm: Arm, shown: Sequence[str], *, first: bool) -> str:
    """Return the error of a filled-in view; with the unit at its first mention."""
    own, alone = _levels(run, (arm, run.lower), shown, FILLED)
    unit = run.known(FILLED).after * first
    beside = f" (a hospital alone {alone})" if alone else ""
    return f"fills in a missing view with an error of {own}{unit}{beside}"


def _levels(run: Run, arms: Sequence[Arm | None], shown: Sequence[str], metric: str) -> list[str]:
    """Return each arm's range of a metric over some settings; empty where it has none."""
    found = [
        [s.mean for c in shown if a and (s := run.summary(a.name, c, metric)) is not None]
        for a in arms
    ]
    least = min((v for own in found for v in own), default=PLAIN)
    digits = 2 if least >= PLAIN else run.known(metric).digits
    return [span(own, digits) if own else "" for own in found]


def filled(run: Run, arm: Arm, scenario: str) -> list[str]:
    """Return a sentence on the error of a filled-in view in one setting, beside the bounds."""
    found = run.summary(arm.name, scenario, FILLED)
    if found is None or run.metric == FILLED:
        return []
    known = run.known(FILLED)
    said = " A missing view is filled in with an error of "
    said += words.estimate(found.mean, found.low, found.high, known.digits) + known.after
    beside: list[str] = []
    for bound in (run.lower, run.upper):
        s = run.summary(bound.name, scenario, FILLED) if bound else None
        if bound is None or s is None:
            continue
        level = f"{words.inline(bound.title)} {words.fixed(s.mean, known.digits)}"
        beside.append(level + _clearly(run.difference(arm.name, bound.name, scenario, FILLED)))
    return [f"{said}{'; ' if beside else ''}{', '.join(beside)}."]


def _clearly(difference: Mean) -> str:
    """Return whether an error clearly differs from another."""
    return {1: " (clearly more)", -1: " (clearly less)"}.get(difference.side, "")


def caveats() -> list[str]:
    """Return the caveats of latent coordinates."""
    return [
        "An error of reconstruction falls with every further latent number, whether or not it "
        "means anything: arms of different numbers compare by how they fill in a view that is "
        "hidden from them.",
        "Errors are in standard deviations of each feature, and each feature counts alike: the "
        "errors by view and by column show their sources.",
    ]


#: Settings in which arms of one family differ: dimensions, and additional results of a fit.
FREE = ("q", "q_range", "draws", "compare")
#: What a setting of q says of an arm that chooses.
AUTO = "auto"


def family(arm: Arm) -> str:
    """Return what arms that differ in q alone share; an arm without q is its own family."""
    if "q" not in arm.settings:
        return arm.name
    rest = {k: v for k, v in arm.settings.items() if k not in FREE}
    return f"{arm.role}/{arm.method}/{json.dumps(rest, sort_keys=True, default=str)}"


def relatives(run: Run, arm: Arm) -> list[Arm]:
    """Return the arms of an arm's family, itself among them, in declared order."""
    return [a for a in run.arms if family(a) == family(arm)]


def heads(arms: Sequence[Arm]) -> list[Arm]:
    """Return one arm per family: the first that chose its q, otherwise all of them."""
    choose = {family(a): a for a in reversed(arms) if a.settings.get("q") == AUTO}
    return [a for a in arms if choose.get(family(a), a) is a]


def without_alike(run: Run, arms: Sequence[Arm]) -> list[Arm]:
    """Return, for a study of latents, only the `heads` of families."""
    return heads(arms) if run.task == "latent" else list(arms)


def dimensions_of(run: Run, arm: Arm, scenario: str) -> int | None:
    """Return an arm's number of dimensions; if it chose, the first repeat's."""
    q = number(arm.settings.get("q"))
    q = history.final_values(run).get((arm.name, scenario), q) if q != q else q
    return int(q) if q == q else None
