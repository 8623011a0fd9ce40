"""A data steward's commands, on the files of a node's state."""

from __future__ import annotations

import getpass
import json
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedcohort.apps import outfile
from fedcohort.data import describe, prepare
from fedcohort.network.kits import Kit
from fedcohort.network.node.table import open_table
from fedcohort.network.requests import FAILED, is_hash
from fedcohort.network.state import (
    cohorts,
    decisions,
    findings,
    kept,
    signatures,
    study_store,
    withdrawals,
)
from fedcohort.network.state import ledger as node_ledger
from fedcohort.network.state.budget import Account, Amount, Budget
from fedcohort.network.state.policy import Asked, Config
from fedcohort.network.state.study_store import Entry, StudyStore, short
from fedcohort.network.steward import approval, paper, record
from fedcohort.network.steward import details as messages
from fedcohort.network.steward.earlier import earlier
from fedcohort.network.study_offer import Offer
from fedcohort.protocol import registry
from fedcohort.protocol.errors import FedcohortError, InputError, Refused
from fedcohort.protocol.step import Step
from fedcohort.report import words as plain
from fedcohort.secure.trust import Peer
from fedcohort.study.at_site import asking, counting, holding, judging
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.step_words import step_words
from fedcohort.study.run.extras import asked_of

#: What a study asks besides the steps of its methods: Table 1, counts, and how models are judged.
OWN_STEPS: tuple[Step[..., Any], ...] = (
    *describe.STEPS, *counting.STEPS, *judging.STEPS, *holding.STEPS,
)  # fmt: skip


def studies(
    node: Path, config: Path | None, text: str | None, *, check: bool, details: bool = False
) -> Iterator[str]:
    """Yield the list of studies, or the page on one, with its `details` below.

    Raises
    ------
    InputError : no kit of a site, no configuration, or no such study.
    """
    kit = _site(node)
    if text is None and not (kit.folder / "state" / "desk").is_dir():
        yield from messages.summary(())
        return
    found = _config(kit, config)
    store = signatures.open_store(kit, found.policy, kit.folder / "state")
    if text is None:
        yield from _list(store)
        return
    facts = _facts(kit, found, store, store.find(text), check=check)
    name, study = facts.terms.plan.study, facts.entry.study
    yield f"Study {name} at {kit.name}"
    yield f"{study}"
    yield ""
    width = min(messages.WIDTH, shutil.get_terminal_size((messages.WIDTH, 24)).columns)
    yield from approval.in_lines(approval.page(facts), width)
    at = _at(node, config)
    if (found_here := findings.path_of(kit.folder / "state", study)).is_file():
        yield f"Feedback on your table: {found_here}"
    for model in findings.kept_models(kit.folder / "state", study):
        yield f"Your site's own model, by {model.name}: fedcohort predict {model} TABLE"
    if facts.entry.waits:
        signed = " --kit STEWARD_KIT" * (found.policy.approval == "steward")
        yield ""
        yield f"To decide: fedcohort node approve {short(study)}{at}{signed}"
        yield f"       or: fedcohort node refuse {short(study)} --reason '…'{at}{signed}"
    if not details:
        yield f"Details:   fedcohort node studies {short(study)} --details{at}"
        yield f"To sign:   fedcohort node export {short(study)}{at}"
        return
    yield ""
    yield "Details"
    yield from messages.as_lines(facts.terms, found.policy.min_cell, width)


def export(
    node: Path, config: Path | None, text: str | None, out: Path | None, *, check: bool, force: bool
) -> str:
    """Write the page on a study, to print and sign, or that of the whole desk; return one line.

    Raises
    ------
    InputError : no kit of a site, no configuration, or no such study.
    StudyError : the page cannot be written there.
    """
    kit = _site(node)
    found = _config(kit, config)
    state = kit.folder / "state"
    store, today = (
        signatures.open_store(kit, found.policy, state, then=then) for then in (True, False)
    )
    signed = found.policy.approval == "steward"
    if text is None:
        made, left_out = record.records(store, today)
        account = Budget(state / "budget.sqlite", found.data.name, found.policy.budget).account()
        page = paper.of_site(
            kit.network, kit.name, today.entries(), made, left_out,
            list(_account(account)), signed=signed,
        )  # fmt: skip
        out = out or Path(f"desk-{kit.name}.html")
    else:
        study = store.find(text)
        made, left_out = record.records(store, today, study)
        facts = _facts(kit, found, today, study, check=check, decided=bool(made))
        rows = messages.in_rows(facts.terms, found.policy.min_cell)
        page = paper.of_study(kit.network, facts, made, left_out, rows, signed=signed)
        out = out or Path(f"study-{short(study)}-{kit.name}.html")
    outfile.check(out, [kit.folder], force=force, page=True)
    outfile.write(out, page)
    return f"written: {out}"


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
    return _decide(node, config, text, steward, study_store.APPROVED, "", until, runs)


def refuse(node: Path, config: Path | None, text: str, steward: Path | None, reason: str) -> str:
    """Refuse a study with a reason; return one line that says so.

    Raises
    ------
    InputError : there is no reason.
    """
    if not reason.strip():
        raise InputError("--reason: say in a few words why; the study's lead reads it.")
    return _decide(node, config, text, steward, study_store.REFUSED, reason)


def withdraw(
    node: Path, config: Path | None, text: str, steward: Path | None, reason: str, out: Path | None
) -> Iterator[str]:
    """Withdraw this site from a study for good; yield what was done.

    The signed withdrawal is kept, and written to a file for the study's lead. The study, and all
    that forget hospitals in it, are refused from now on; what this site kept of them is deleted.

    Raises
    ------
    InputError : there is no reason, the kit is of someone else, or the file exists.
    """
    if not reason.strip():
        raise InputError("--reason: say in a few words why; the study's lead reads it.")
    kit = _site(node)
    policy = _config(kit, config).policy
    state = kit.folder / "state"
    store = signatures.open_store(kit, policy, state)
    family = store.family(store.find(text))
    study, name = family[0], store.entry(family[0]).name
    if (known := store.withdrawal(study)) and out is None:
        one = withdrawals.Withdrawal.of(known)
        raise InputError(
            f"{kit.name} {one.said}. To write its file again, give --out and another name."
        )
    if steward is None and policy.approval == "steward":
        raise InputError(
            f"decisions at {kit.name} are signed by its data steward; give the kit of "
            f"{signatures.name_of(kit.name)!r}: --kit STEWARD_KIT."
        )
    out = out or Path(f"withdrawal-{short(study)}-{kit.name}.json")
    if out.exists():
        raise InputError(f"--out {out}: this file exists. Name another one.")
    signs = kit if steward is None else Kit.read(steward)
    if known:
        one = withdrawals.Withdrawal.of(known)
    else:
        one = withdrawals.made(signs, kit.name, kit.network, study, " ".join(reason.split()))
        store.withdraw(study, one.record())
        for each in family:
            _refuse_for_good(store, kit, each, signs, one.reason)
    deleted = sum(kept.delete(state, each) for each in family)
    noted = node_ledger.NodeLedger(state / "ledger.jsonl")
    try:
        noted.note(study, "withdrawn", "withdrawn", f"the hospital {one.said} ({one.by})")
    finally:
        noted.close()
    outfile.write(out, json.dumps(one.record(), indent=1) + "\n")
    yield f"{kit.name} has withdrawn from {name} ({short(study)}), signed by {one.by}."
    yield f"Deleted of what was kept here: {plain.of(deleted, 'file')}."
    yield f"written: {out}"
    yield (
        "Give this file to the study's lead, or let the node run: the lead's command asks it. "
        "Models that were made before still have this site's data in them."
    )


def _refuse_for_good(store: StudyStore, kit: Kit, study: str, signs: Kit, reason: str) -> None:
    """Write a withdrawal into the history of a study as a refusal."""
    said = f"withdrawn: {reason}"[: study_store.LONGEST_REASON]
    sign = signatures.signer(signs, kit.name) if signs.role == "steward" else None
    store.decide(study, study_store.REFUSED, signs.name, said, sign)


def keeps(node: Path, text: str | None, *, delete: bool) -> Iterator[str]:
    """Yield what this site keeps of fits, by study, or delete what it keeps of one.

    Raises
    ------
    InputError : no such study, or none was named to delete.
    """
    kit = _site(node)
    state = kit.folder / "state"
    store = StudyStore(state / "desk", kit.network, kit.name, None)
    study = None if text is None else store.find(text)
    if delete:
        if study is None:
            raise InputError("--delete: name the study whose kept parts shall go.")
        n = kept.delete(state, study)
        yield f"deleted: {plain.of(n, 'file')} of {store.entry(study).name} ({short(study)})"
        yield "Hospitals are forgotten in it by a new fit from now on."
        return
    found = list(kept.parts(state, study))
    for one in found:
        name = store.entry(one.study).name if store.has(one.study) else "a study no longer here"
        yield f"{short(one.study)}  {name}  {one.name}  {plain.size(one.size)}  {one.at}"
    if not found:
        yield "Nothing is kept of fits here."


def history(node: Path, config: Path | None, text: str | None) -> Iterator[str]:
    """Yield all decisions of a site, or those on one study, the earliest first.

    With a steward, only those with a verified signature, by a certificate valid at the time.
    """
    kit = _site(node)
    policy = _config(kit, config).policy
    state = kit.folder / "state"
    store, today = (signatures.open_store(kit, policy, state, then=then) for then in (True, False))
    wanted = None if text is None else store.find(text)
    yield f"Decisions at {kit.name}" + (" on all studies" if wanted is None else "")
    for line in record.lines(
        *record.records(store, today, wanted), signed=policy.approval == "steward"
    ):
        yield from _folded(line)


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
        messages.WIDTH,
    )


def ledger(node: Path, text: str | None) -> list[str]:
    """Return in plain words what left the site."""
    kit = _site(node)
    state = kit.folder / "state"
    store = StudyStore(state / "desk", kit.network, kit.name, None)
    run = store.find(text) if text is not None else None
    lines = list(node_ledger.read(state / "ledger.jsonl", run))
    names: dict[str, str] = {"": "Requests that name no study"}
    steps: list[Step[..., Any]] = [*prepare.STEPS, *OWN_STEPS]
    for study in dict.fromkeys(str(line["run"]) for line in lines):
        if not is_hash(study):
            continue
        entry = store.entry(study)
        names[study] = f"{entry.name} ({short(study)}), of {entry.lead}" if entry.name else study
        steps += _steps(store, study)
    return [
        part
        for line in node_ledger.as_lines(lines, names, step_words(steps))
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
    path = config or study_store.noted_config(kit.folder / "state")
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
    store = signatures.open_store(kit, policy, kit.folder / "state")
    study = store.find(text)
    good: dict[str, Any] = {}
    if decision == study_store.APPROVED:
        good["until"] = decisions.day(until) if until else decisions.until(policy.approval_days)
        good["runs"] = policy.approval_runs if runs is None else runs
        if record_ := store.withdrawal(study):
            said = withdrawals.Withdrawal.of(record_).said
            raise InputError(f"{kit.name} {said}. That is for good; a new study can be approved.")
        _check_open(store, study)
    if steward is None:
        if policy.approval == "steward":
            raise InputError(
                f"decisions at {kit.name} are signed by its data steward; give the kit of "
                f"{signatures.name_of(kit.name)!r}: --kit STEWARD_KIT."
            )
        made = store.decide(study, decision, getpass.getuser(), reason, **good)
    else:
        own = Kit.read(steward)
        sign = signatures.signer(own, kit.name)
        made = store.decide(study, decision, own.name, reason, sign, **good)
    name = f"{store.entry(study).name} ({short(study)})"
    terms = ""
    if made.decision == study_store.APPROVED:
        terms = f", until {made.until}, for {plain.of(made.runs, 'run')}"
    return f"{name} is {made.decision} by {made.by}{terms}."


def _check_open(store: StudyStore, study: str) -> None:
    """Refuse to approve an ended study, unless its lead can resume it and needs a new approval.

    Raises
    ------
    InputError : there is nothing to decide.
    """
    entry = store.entry(study)
    if entry.ended is None:
        return
    made = entry.decision
    approved = made is not None and made.decision == study_store.APPROVED
    what = "If its lead submits it again, it waits here again; approve it then."
    if approved and entry.ended.how == FAILED:
        assert made is not None
        if store.lapse(study, made):
            return
        what = f"Its lead can resume it: the approval by {made.by} counts until {made.until}."
    raise InputError(
        f"{entry.name} ({short(study)}) ended: {study_store.said_of(entry.ended)}. There is "
        f"nothing to approve. {what}"
    )


def _at(node: Path, config: Path | None) -> str:
    """Return this command's options for the node's place, for the next command."""
    told = {"--node": None if node == Path() else node, "--config": config}
    return "".join(f" {option} {shlex.quote(str(p))}" for option, p in told.items() if p)


def _list(store: StudyStore) -> list[str]:
    rows = [
        {
            "study": short(e.study),
            "name": e.name,
            "asked by": e.lead,
            "came": e.first[:16].replace("T", " "),
            "state": record.state(e),
        }
        for e in store.entries()
    ]
    return messages.summary(rows)


def _facts(
    kit: Kit, config: Config, store: StudyStore, study: str, *, check: bool, decided: bool = False
) -> approval.Facts:
    """Return the inputs of a study's page. The table is read only if `check` is true.

    Parameters
    ----------
    decided : a decision was made on it, also one that counts no longer.
    """
    state, data = kit.folder / "state", config.data
    entry = store.entry(study)
    offer = Offer.from_bytes(store.offer(study))
    lead, as_of = _lead(offer, kit, entry, decided=decided or entry.decision is not None)
    terms = Terms.from_json(offer.terms)
    table, fit = None, "; ".join(entry.unfit)
    if check:
        try:
            key = cohorts.known_key(state)
            table = open_table(terms, kit.name, data, config.policy.min_rows, key)
            fit = "It fits the study's dictionary, and has rows enough."
        except Refused as error:
            fit = str(error)
    asked = Asked.of(terms.plan, terms.dictionary, terms.outcome)
    marks = () if table is None else table.marks
    return approval.Facts(
        terms, lead.name, lead.organisation, kit.name, config.policy, data.name,
        Budget(state / "budget.sqlite", data.name, config.policy.budget).account(), entry,
        earlier(store, state, data.name, study, asked.columns, marks), table, fit, check, as_of,
        store.ranking(study), store.answer_by(study),
    )  # fmt: skip


def _lead(offer: Offer, kit: Kit, entry: Entry, *, decided: bool) -> tuple[Peer, str]:
    """Return a study's signer; of a decided one, by the certificate of the day it came if needed.

    Raises
    ------
    Refused : the signature does not count, or counts no longer and nobody has decided.
    """
    try:
        return offer.verify(kit.trust()), ""
    except Refused as error:
        if error.code not in ("expired", "version") or not decided:
            raise
        then = signatures.trust_at(kit.trust(), entry.first)
        return offer.verify(then, version=offer.version), entry.first[:10]


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


def _steps(store: StudyStore, study: str) -> list[Step[..., Any]]:
    """Return the steps of a study's methods, as far as its text can be read."""
    try:
        plan = Terms.from_json(Offer.from_bytes(store.offer(study)).terms).plan
        fits = [s for arm in plan.arms for s in registry.find(arm.method).steps]
        return [*fits, *(s for kind in asked_of(plan) for s in asking.of_extras(kind))]
    except (FedcohortError, OSError):
        return []


def _folded(line: str) -> list[str]:
    """Return a line of the ledger in lines of the screen's width."""
    lead = " " * (len(line) - len(line.lstrip()))
    inner = lead + "  " if lead else ""
    width = messages.WIDTH
    return textwrap.wrap(line, width, subsequent_indent=inner, break_on_hyphens=False) or [""]
