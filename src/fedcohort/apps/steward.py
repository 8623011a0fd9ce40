"""What the commands of a data steward do: they read and write the files of a node's state."""

from __future__ import annotations

import getpass
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedcohort.data import describe, preprocess
from fedcohort.network import decisions, findings, node_ledger, stewards, words
from fedcohort.network import desk as desks
from fedcohort.network.budget import Account, Amount, Budget
from fedcohort.network.desk import Desk, Entry, short
from fedcohort.network.kits import Kit
from fedcohort.network.node_table import open_table
from fedcohort.network.offer import Offer
from fedcohort.network.policy import Config
from fedcohort.protocol import registry
from fedcohort.protocol.errors import FedcohortError, InputError, Refused
from fedcohort.protocol.step import Step
from fedcohort.report import words as plain
from fedcohort.study.besides import asked_of
from fedcohort.study.deployed import asking, counting, holding, judging
from fedcohort.study.deployed.terms import Terms
from fedcohort.study.step_words import step_words

#: What a study asks besides the steps of its methods: Table 1, counts, and how models are judged.
OWN_STEPS: tuple[Step[..., Any], ...] = (
    *describe.STEPS, *counting.STEPS, *judging.STEPS, *holding.STEPS,
)  # fmt: skip


def studies(node: Path, config: Path | None, text: str | None, *, check: bool) -> Iterator[str]:
    """Yield the list of studies, or what one asks.

    Raises
    ------
    InputError : no kit of a site, no configuration, or no such study.
    """
    kit = _site(node)
    if text is None and not (kit.folder / "state" / "desk").is_dir():
        yield from words.summary(())
        return
    found = _config(kit, config)
    desk = stewards.desk(kit, found.policy, kit.folder / "state")
    if text is None:
        yield from _list(desk)
        return
    entry = desk.entry(desk.find(text))
    offer = Offer.from_bytes(desk.offer(entry.study))
    lead = offer.verify(kit.trust())
    terms = Terms.from_json(offer.terms)
    yield from words.in_words(
        terms,
        lead.name,
        lead.organisation,
        found.policy.min_cell,
    )
    fit = _fit(kit, found, terms) if check else "; ".join(entry.unfit)
    yield ""
    yield f"State: {_state(entry)}."
    if fit:
        yield from textwrap.wrap(f"Your table: {fit}", words.WIDTH)
    if (found_here := findings.path_of(kit.folder / "state", entry.study)).is_file():
        yield f"Feedback on your table: {found_here}"
    if entry.waits:
        at = _at(node, config) + " --kit STEWARD_KIT" * (found.policy.approval == "steward")
        yield f"To decide: fedcohort node approve {short(entry.study)}{at}"
        yield f"       or: fedcohort node refuse {short(entry.study)} --reason '…'{at}"


def approve(
    node: Path,
    config: Path | None,
    text: str,
    steward: Path | None,
    until: str | None = None,
    runs: int | None = None,
) -> str:
    """Approve a study; return one line that says so.

    Raises
    ------
    InputError : nobody may decide so, the study has ended, or `until` is no day from today on.
    """
    return _decide(node, config, text, steward, desks.APPROVED, "", until, runs)


def refuse(node: Path, config: Path | None, text: str, steward: Path | None, reason: str) -> str:
    """Refuse a study with a reason; return one line that says so.

    Raises
    ------
    InputError : there is no reason.
    """
    if not reason.strip():
        raise InputError("--reason: say in a few words why; the study's lead reads it.")
    return _decide(node, config, text, steward, desks.REFUSED, reason)


def history(node: Path, config: Path | None, text: str | None) -> Iterator[str]:
    """Yield all decisions of a site, or those on one study, the earliest first.

    Where its steward signs, these are the decisions whose signature was verified, with a
    certificate that was good when they were made.
    """
    kit = _site(node)
    policy = _config(kit, config).policy
    desk = stewards.desk(kit, policy, kit.folder / "state", then=True)
    wanted = None if text is None else desk.find(text)
    entries = [e for e in desk.entries() if wanted in (None, e.study)]
    found: list[tuple[str, int, str, list[str]]] = []
    left_out = 0
    for e in entries:
        made, rest = desk.history(e.study)
        left_out += rest
        for one in made:
            used = len(desk.begun(e.study, one))
            last = one is made[-1]
            lines = [f"{one.at[:16].replace('T', ' ')}  {e.name} ({short(e.study)}), of {e.lead}"]
            lines += _wrapped(f"  {_made(one, used)}")
            lines += _wrapped(f"  ended: {desks.said_of(e.ended)}") if e.ended and last else []
            found.append((one.at, one.number, e.study, lines))
    yield f"Decisions at {kit.name}" + (" on all studies" if wanted is None else "")
    if policy.approval == "steward":
        yield "Each was signed by its data steward, and the signature is verified."
        if left_out:
            n = plain.of(left_out, "line")
            yield f"Left out: {n} without a signature that counts here."
    else:
        yield "Its policy approves by itself, so that decisions here are not signed."
    for *_, lines in sorted(found, key=lambda f: f[:3]):
        yield ""
        yield from lines
    if not found:
        yield ""
        yield "None was made."


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, words.WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def budget(node: Path, config: Path | None) -> Iterator[str]:
    """Yield where the site's privacy budget stands."""
    kit = _site(node)
    found = _config(kit, config)
    path = kit.folder / "state" / "budget.sqlite"
    account = Budget(path, found.data.name, found.policy.budget).account()
    yield f"Privacy budget of {found.data.name!r} at {kit.name}:"
    yield from _account(account)
    yield from textwrap.wrap(
        "A study that asks for privacy.dp spends its epsilon and delta for each fit, from the "
        "fit's first reply on, and again where a fit is started anew. What sums and models "
        "reveal without noise is not counted here; `fedcohort node ledger` says what left.",
        words.WIDTH,
    )


def ledger(node: Path, text: str | None) -> list[str]:
    """Return in plain words what left the site."""
    kit = _site(node)
    state = kit.folder / "state"
    desk = Desk(state / "desk", kit.network, kit.name, None)
    run = desk.find(text) if text is not None else None
    lines = list(node_ledger.read(state / "ledger.jsonl", run))
    names: dict[str, str] = {"": "Requests that name no study"}
    steps: list[Step[..., Any]] = [*preprocess.STEPS, *OWN_STEPS]
    for study in dict.fromkeys(str(line["run"]) for line in lines):
        if not desks.is_hash(study):
            continue
        entry = desk.entry(study)
        names[study] = f"{entry.name} ({short(study)}), of {entry.lead}" if entry.name else study
        steps += _steps(desk, study)
    return [
        part
        for line in node_ledger.in_words(lines, names, step_words(steps))
        for part in _folded(line)
    ]


def _site(node: Path) -> Kit:
    """Return a site's kit.

    Raises
    ------
    InputError : it is no kit, or of another party.
    """
    if not (node / "kit.toml").is_file():
        raise InputError(f"{node}: this is no kit. Name the site's kit: --node KIT.")
    kit = Kit.open(node)
    if kit.role != "site":
        raise InputError(f"{node}: this is the kit of a {kit.role}; --node names that of a site.")
    return kit


def _config(kit: Kit, config: Path | None) -> Config:
    """Return the node's configuration.

    Raises
    ------
    InputError : there is none, or it is wrong.
    """
    path = config or desks.noted_config(kit.folder / "state")
    if path is None:
        raise InputError(f"{kit.folder}: no node ran here yet; name its node.toml with --config.")
    return Config.read(path)


def _decide(
    node: Path,
    config: Path | None,
    text: str,
    steward: Path | None,
    decision: str,
    reason: str,
    until: str | None = None,
    runs: int | None = None,
) -> str:
    kit = _site(node)
    policy = _config(kit, config).policy
    desk = stewards.desk(kit, policy, kit.folder / "state")
    study = desk.find(text)
    good: dict[str, Any] = {}
    if decision == desks.APPROVED:
        good["until"] = decisions.day(until) if until else decisions.until(policy.approval_days)
        good["runs"] = policy.approval_runs if runs is None else runs
        _check_open(desk, study)
    if steward is None:
        if policy.approval == "steward":
            raise InputError(
                f"decisions at {kit.name} are signed by its data steward; give the kit of "
                f"{stewards.name_of(kit.name)!r}: --kit STEWARD_KIT."
            )
        made = desk.decide(study, decision, getpass.getuser(), reason, **good)
    else:
        own = Kit.read(steward)
        sign = stewards.signer(own, kit.name)
        made = desk.decide(study, decision, own.name, reason, sign, **good)
    name = f"{desk.entry(study).name} ({short(study)})"
    terms = ""
    if made.decision == desks.APPROVED:
        terms = f", until {made.until}, for {plain.of(made.runs, 'run')}"
    return f"{name} is {made.decision} by {made.by}{terms}."


def _check_open(desk: Desk, study: str) -> None:
    """Refuse to approve what has ended, unless its lead can resume it and needs a new approval.

    Raises
    ------
    InputError : there is nothing to decide.
    """
    entry = desk.entry(study)
    if entry.ended is None:
        return
    made = entry.decision
    approved = made is not None and made.decision == desks.APPROVED
    what = "If its lead submits it again, it waits here again; approve it then."
    if approved and entry.ended.how == desks.FAILED:
        assert made is not None
        if desk.lapse(study, made):
            return
        what = f"Its lead can resume it: the approval by {made.by} counts until {made.until}."
    raise InputError(
        f"{entry.name} ({short(study)}) ended: {desks.said_of(entry.ended)}. There is nothing to "
        f"approve. {what}"
    )


def _at(node: Path, config: Path | None) -> str:
    """Return how this command was told where the node is, for the next one."""
    told = {"--node": None if node == Path() else node, "--config": config}
    return "".join(f" {option} {shlex.quote(str(p))}" for option, p in told.items() if p)


def _list(desk: Desk) -> list[str]:
    rows = [
        {
            "study": short(e.study),
            "name": e.name,
            "asked by": e.lead,
            "came": e.first[:16].replace("T", " "),
            "state": _state(e),
        }
        for e in desk.entries()
    ]
    return words.summary(rows)


def _state(entry: Entry) -> str:
    """Say where a study stands here: the decision on it, its run, its end."""
    made, end = entry.decision, entry.ended
    known = made is not None and end is not None and {made.decision, end.how} == {desks.REFUSED}
    ended = "" if end is None or (known and end.here) else f"ended: {desks.said_of(end)}"
    if made is None:
        return ended or "waiting for a decision"
    if entry.lapsed:
        return f"waiting for a decision again: {entry.lapsed}"
    running = ", runs now" if entry.running else ""
    return f"{_made(made, entry.used)}{running}" + f"; {ended}" * bool(ended)


def _made(made: desks.Decision, used: int | None) -> str:
    """Say what was decided, by whom, when, why and for how long."""
    said = f"{made.decision} by {made.by}, {made.at[:16].replace('T', ' ')}"
    said += f": {made.reason}" if made.reason else ""
    if made.until:
        said += f", until {made.until}, "
        said += f"{plain.of(made.runs, 'run')}" + f" ({used} used)" * (used is not None)
    return said


def _fit(kit: Kit, config: Config, terms: Terms) -> str:
    """Say whether the site's table fits a study."""
    try:
        open_table(terms, kit.name, config.data, config.policy.min_rows)
    except Refused as error:
        return str(error)
    return "it fits the study's dictionary, and has rows enough."


def _account(account: Account) -> Iterator[str]:
    def line(name: str, amount: Amount) -> str:
        return f"  {name:<10}ε {amount.epsilon.normalize():f}, δ {amount.delta.normalize():g}"

    if account.allowed is None or account.left is None:
        yield "  none is set in node.toml ([policy.privacy_budget]), so nothing can be spent."
    else:
        yield line("allowed", Amount(account.allowed.epsilon, account.allowed.delta))
        yield line("reserved", account.reserved)
        yield line("spent", account.spent)
        yield line("left", account.left)
    for study, reserved, spent in account.studies:
        yield f"  study {short(study)}:"
        yield "  " + line("reserved", reserved)
        yield "  " + line("spent", spent)


def _steps(desk: Desk, study: str) -> list[Step[..., Any]]:
    """Return the steps of a study's methods, as far as its text can be read."""
    try:
        plan = Terms.from_json(Offer.from_bytes(desk.offer(study)).terms).plan
        fits = [s for arm in plan.arms for s in registry.find(arm.method).steps]
        return [*fits, *(s for kind in asked_of(plan) for s in asking.of_besides(kind))]
    except (FedcohortError, OSError):
        return []


def _folded(line: str) -> list[str]:
    """Return a line of the ledger in lines of the screen's width."""
    lead = " " * (len(line) - len(line.lstrip()))
    inner = lead + "  " if lead else ""
    return textwrap.wrap(line, words.WIDTH, subsequent_indent=inner, break_on_hyphens=False) or [""]
