"""Gradient inversion: reading records out of a site's first update.

The attack of `gradients` on the messages of `messages`, for one batch of a site's own records: with
no protection, in a masked sum over all sites, and with differential privacy. Eq. (1) counts
recovered records; the same count on records from elsewhere is chance.

Few records are the easiest to find, so each site takes part with `records` of them: the audit tests
the study's protection, not the size of its hospitals.

A record is recovered if, in the pairing of guesses with records of least total error (Hungarian
method), its guess x̂ is within 5 % of it and nearer to it than any other record of the batch is:

    ‖x̂ − x‖ < 0.05 ‖x‖   and   ‖x̂ − x‖ < min_{x' ≠ x} ‖x' − x‖                             (1)

in the scaled features that the network sees. All guesses are compared with the truth, also more
guesses than records, which favours the attacker; so the same guesses are compared with records that
were not in the batch as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedcohort.arrays import Array
from fedcohort.audit.findings import Findings
from fedcohort.audit.gradients import Attacked, fitted, quotients
from fedcohort.audit.messages import OPEN, Sender, Settings, Table
from fedcohort.audit.rebuilt import Rebuilt
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.privacy.noise import Source
from fedcohort.protocol import DataError, Fitted
from fedcohort.protocol.private import Dp
from fedcohort.training.networks.private_fits import ABLE
from fedcohort.training.private import move_privately, pull_privately

#: Largest ‖x̂ − x‖/‖x‖ of a recovered record.
CLOSE = 0.05
#: Methods with a message that the attack reads.
METHODS = ("deepcox", "classifier", "regressor")
#: Most entries of the fit's Jacobian: 400 MB. A larger fit is not tried.
MOST = 50_000_000


@dataclass(frozen=True)
class Match:
    """How near guesses came to records: relative error (B,), and which are recovered (B,) bool."""

    error: Array
    recovered: Array

    @property
    def count(self) -> int:
        """Number of records recovered."""
        return int(self.recovered.sum())


def match(guesses: Array, records: Array) -> Match:
    """Pair guesses (G, p) with records (B, p), eq. (1); G may be 0, or more than B."""
    error = np.full(len(records), np.inf)
    if not len(guesses) or not len(records):
        return Match(error, np.zeros(len(records), bool))
    apart = cdist(records, guesses)
    size = np.maximum(np.linalg.norm(records, axis=1), 1e-12)
    capped = np.minimum(apart / size[:, None], 10.0)
    mine, theirs = linear_sum_assignment(capped)
    error[mine] = apart[mine, theirs] / size[mine]
    between = cdist(records, records)
    other = np.where(between > 1e-9, between, np.inf).min(1)
    return Match(error, (error < CLOSE) & (error * size < other))


#: What is tried where the study has no differential privacy of its own.
SUPPOSED = Dp(epsilon=4.0)
OFF, MASKED, DP = "none", "masked sum", "differential privacy"


@dataclass(frozen=True)
class Stolen:
    """Records that an attack found, and what it took.

    Attributes
    ----------
    algebra, fit, either : numbers of records recovered by each way.
    chance : the number that the same guesses "recover" among records that were not there.
    misfit : ‖residual‖/‖G‖ of the fit; None where there are more unknowns than numbers.
    """

    algebra: int
    fit: int
    either: int
    chance: int
    misfit: float | None


def attack(
    gradient: Array,
    attacked: Attacked,
    records: Array,
    elsewhere: Array,
    n: int,
    rng: np.random.Generator,
    attempts: int,
) -> Stolen:
    """Attack a sum of gradients (P,) for `records` (B, p), which are among the n that are in it.

    Parameters
    ----------
    elsewhere : (B, p), records that are not.
    attempts : descents of the fit, which is tried where n (p + K) ≤ P, and n p P ≤ `MOST`.
    """
    guesses = quotients(gradient, attacked)
    by_algebra = match(guesses, records)
    chance = match(guesses, elsewhere).recovered
    by_fit, misfit = np.zeros(len(records), bool), None
    size = len(gradient)
    if unknowns(attacked, n) <= size and n * attacked.inputs * size <= MOST:
        found = fitted(gradient, attacked, n, guesses, rng, attempts)
        by_fit, misfit = match(found.x, records).recovered, found.misfit
        chance = chance | match(found.x, elsewhere).recovered
    either = by_algebra.recovered | by_fit
    return Stolen(by_algebra.count, int(by_fit.sum()), int(either.sum()), int(chance.sum()), misfit)


def unknowns(attacked: Attacked, n: int) -> int:
    """Return how many numbers the attacker does not know of n records: x (n, p) and s (n, K)."""
    return n * (attacked.inputs + attacked.outputs)


def invert(
    run: Rebuilt,
    *,
    arm: str | None = None,
    site: str | None = None,
    records: int = 8,
    attempts: int = 60,
    hidden: tuple[int, ...] | None = None,
    activation: str | None = None,
    seed: int = 0,
) -> Findings:
    """Audit one arm of a run.

    Parameters
    ----------
    site : whose records; the first by name.
    records : B, of each site.
    hidden, activation : another network than the arm's, to see what a wider one would give away.

    Raises
    ------
    DataError : no such site, an arm of another method or of images, or fewer rows than records.
    """
    chosen = run.arm(arm, methods=METHODS)
    base = run.method(chosen).configure(
        run.settings(chosen)
        | ({} if hidden is None else {"hidden": hidden})
        | ({} if activation is None else {"activation": activation})
    )
    if getattr(base, "has_images", False):
        raise DataError(
            f"{run.folder}: arm {chosen.name!r} learns images by convolutions; the attack reads "
            f"the gradient of a dense first layer. Audit an arm without image and refined, or by "
            f"membership."
        )
    tables, held_out = tables_of(run, chosen.name)
    name = site or min(tables)
    if name not in tables:
        raise DataError(f"{run.folder}: no site {name!r}; there are {', '.join(sorted(tables))}.")
    if len(tables[name].x) < records:
        raise DataError(
            f"{run.folder}: site {name!r} has {len(tables[name].x)} training rows; ask for as many "
            f"--records or fewer."
        )
    rng = np.random.default_rng((seed, 0x696E76))
    every = np.concatenate([t.x for t in tables.values()])
    model = run.saved(chosen).model
    sender = Sender.of(base, model, every.shape[1], run.seed)
    parts = {k: _batch(sender, t, records, rng) for k, t in sorted(tables.items()) if len(t.x)}
    attacked = sender.attacked(every.min(0), every.max(0))
    away = held_out[rng.permutation(len(held_out))[:records]]
    lines = [
        _line(protection, kind, message, n, attacked, parts[name].x, away, attempts, seed)
        for protection, kind, message, n in _messages(
            run, chosen.name, model, base, sender, attacked, parts, name, seed
        )
    ]
    return _judged(run, chosen.name, base, name, lines, records, attempts, len(parts))


def tables_of(run: Rebuilt, arm: str) -> tuple[dict[str, Table], Array]:
    """Return each site's training rows as an arm's network saw them, and held-out rows (m, p)."""
    design = run.saved(run.arm(arm)).design
    tables: dict[str, Any] = {k: design(f) for k, f in run.laid.problem.frames.items()}
    return tables, np.asarray(design(run.laid.test).x)


def protection_of(run: Rebuilt, config: Settings, sites: int) -> str:
    """Return which protection the arm had."""
    if run.plan.privacy.dp is not None:
        return DP
    secure = run.plan.privacy.secure != "false" and sites >= 3
    return MASKED if secure and config.strategy not in OPEN else OFF


def _messages(
    run: Rebuilt,
    arm: str,
    model: Fitted,
    config: Settings,
    sender: Sender,
    attacked: Attacked,
    parts: dict[str, Table],
    name: str,
    seed: int,
) -> list[tuple[str, str, Array, int]]:
    """Return (protection, kind of message, what the attacker makes of it (P,), records in it)."""
    own, total = parts[name], sum(len(t.x) for t in parts.values())
    found: list[tuple[str, str, Array, int]] = []
    kinds = ["gradient"] if config.strategy == "exact" else ["update", "gradient"]
    for kind in kinds:
        sent = {
            k: sender.update(t) if kind == "update" else sender.gradient(t, attacked)
            for k, t in parts.items()
        }
        found.append((OFF, kind, sent[name], len(own.x)))
        if len(parts) >= 3:
            found.append((MASKED, kind, np.sum(list(sent.values()), axis=0), total))
    dp = run.plan.privacy.dp or SUPPOSED
    method = run.method(run.arm(arm))
    private, dp = method.private, dp.clipped(method.clips)
    if private is not None:
        # of records, the private fit of the same network
        settings = config if dp.unit == "site" else replace(config, **ABLE)
        trains = (pull_privately.name, move_privately.name)
        release = next(r for r in private.releases(settings, dp) if r.step in trains)
        source = Source.seeded(seed, "audit inversion")
        noisy = Sender.of(settings, model, attacked.inputs, run.seed)
        sent_noisy = noisy.noisy(own, release, dp.norm, dp.unit, source)
        kind = "gradient" if dp.unit == "record" else "update"
        found.append((DP, kind, sent_noisy, len(own.x)))
    return found


def _batch(sender: Sender, table: Table, records: int, rng: np.random.Generator) -> Table:
    """Return some rows of a site, drawn again until most of them enter the gradient."""
    best, most = table, -1
    for _ in range(30):
        rows = rng.permutation(len(table.x))[:records]
        part: Table = (
            SurvivalTable(table.x[rows], table.time[rows], table.event[rows])
            if isinstance(table, SurvivalTable)
            else LabelledTable(table.x[rows], table.y[rows])
        )
        slopes = sender.slopes(part).reshape(len(rows), -1)
        entering = int((np.abs(slopes) > 1e-12).any(axis=1).sum())
        if entering > most:
            best, most = part, entering
    return best


def _line(
    protection: str,
    kind: str,
    message: Array,
    n: int,
    attacked: Attacked,
    records: Array,
    elsewhere: Array,
    attempts: int,
    seed: int,
) -> dict[str, Any]:
    rng = np.random.default_rng((seed, 0x617474))
    found = attack(message, attacked, records, elsewhere, n, rng, attempts)
    return {
        "protection": protection,
        "message": kind,
        "records in it": n,
        "numbers": len(message),
        "unknowns": unknowns(attacked, n),
        "by algebra": found.algebra,
        "by fit": found.fit,
        "recovered": found.either,
        "of": len(records),
        "chance": found.chance,
        "misfit": None if found.misfit is None else float(f"{found.misfit:.2g}"),
    }


def _judged(
    run: Rebuilt,
    arm: str,
    config: Settings,
    site: str,
    lines: list[dict[str, Any]],
    records: int,
    attempts: int,
    sites: int,
) -> Findings:
    """Return the findings, with what they mean for the protection that the study had."""
    had = protection_of(run, config, sites)
    own = next(x for x in lines if x["protection"] == had)
    bare = max(x["recovered"] for x in lines if x["protection"] == OFF)
    alarm = own["recovered"] > own["chance"]
    verdict = (
        f"With the study's protection ({had}) the attack recovered {own['recovered']} of {records} "
        f"records of site {site!r} from its {own['message']}; without any protection it recovers "
        f"up to {bare}."
    )
    for line in lines:
        line["study had"] = line is own
    return Findings(
        "inversion",
        arm,
        "Can the coordinator read a site's records out of its first update?",
        lines,
        verdict,
        alarm,
        {
            "site": site,
            "records": records,
            "attempts": attempts,
            "hidden": list(config.hidden),
            "activation": config.activation,
            "strategy": config.strategy,
        },
    )
