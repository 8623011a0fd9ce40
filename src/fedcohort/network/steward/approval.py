"""The page on which a data steward decides: one study at one site, in plain words.

It says who asks and for what purpose; columns and patients; methods; what leaves and who can read
it; ε and the remaining budget; risks; what earlier studies revealed of the same columns and
patients; how long an approval counts. `details` follows below it. Sources: the signed text, the
site's policy and files, and the table only if the steward has it checked.

Rules: no names of steps or fields; every omission is announced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pandas as pd

from fedcohort.data import describe
from fedcohort.data.check import NOTHING
from fedcohort.data.outcome import levels_of
from fedcohort.data.variable import Variable
from fedcohort.network.state import decisions
from fedcohort.network.state.budget import Account, Amount
from fedcohort.network.state.policy import Asked, Policy
from fedcohort.network.state.study_store import Entry
from fedcohort.network.steward import details, leaving, record
from fedcohort.network.steward.earlier import Earlier
from fedcohort.privacy.disclosure.models import ROWS_EACH, most_parameters
from fedcohort.protocol import registry
from fedcohort.report import words
from fedcohort.report.kinds import kind_of
from fedcohort.study.at_site import asking, counting, judging, ranked
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.second_consent import ranks
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.step_words import plain_words
from fedcohort.study.run.extras import arm_of, asked_of
from fedcohort.study.run.warnings import columns_of, free_parameters, rows_of_leaf

#: Columns, kinds of models, earlier studies, and models of a kind that the page names; it says how
#: many more there are, and the details name them.
COLUMNS, MODELS, STUDIES, NAMED = 30, 6, 3, 4
#: Characters on the page about what a model's training reveals.
CLAUSE = 200
#: What is not stated is called so, where the heading is no noun of its own.
ELSE = {"recipients": "further recipients", "retention": "how long data and results are kept"}
#: Where the text beside a heading begins.
MARGIN = 14


@dataclass(frozen=True)
class Row:
    """One heading of the page and its paragraphs; `risk` where a reader must not miss it."""

    head: str
    lines: tuple[str, ...]
    risk: bool = False


@dataclass(frozen=True)
class Facts:
    """Inputs of the page.

    Attributes
    ----------
    lead, organisation : the verified signer.
    dataset : name of the site's data set.
    table : the site's rows for the study, if the steward has them checked.
    fit : findings of that check; "" without one.
    checked : whether the steward has the table checked now.
    as_of : day on which the lead's certificate was valid, if it is no longer.
    ranking : of a second consent, the text that the site was told; "" of a first one.
    answer_by : time by which to answer it; "" without.
    """

    terms: Terms
    lead: str
    organisation: str
    site: str
    policy: Policy
    dataset: str
    account: Account
    entry: Entry
    earlier: Sequence[Earlier] = ()
    table: SiteTable | None = None
    fit: str = ""
    checked: bool = False
    as_of: str = ""
    ranking: str = ""
    answer_by: str = ""


def page(facts: Facts) -> list[Row]:
    """Return the page, from top to bottom."""
    plan = facts.terms.plan
    rows = [
        *_ranked(facts),
        *_who(facts),
        *([Row("Leaves", lines, risk=True)] if (lines := (*leaving.forgotten(plan),)) else []),
        *_what(facts),
        Row("Methods", tuple(_methods(plan))),
        Row("What leaves", tuple(_leaves(facts))),
        *([Row("What stays", lines)] if (lines := (*leaving.kept(plan),)) else []),
        Row("Privacy", tuple(_privacy(plan, facts.account, facts.dataset))),
        Row("Risks", tuple(_risks(facts)), risk=True),
        Row("Earlier", tuple(_earlier(facts)), risk=bool(facts.earlier)),
        *([Row("Your table", (_yours(facts.fit),))] if facts.fit else []),
        Row("Until", (_until(facts),)),
        Row("State", (_sentence(record.state(facts.entry)),)),
    ]
    return [Row(r.head, tuple(map(details.printable, r.lines)), r.risk) for r in rows]


def in_lines(rows: Sequence[Row], width: int = details.WIDTH) -> list[str]:
    """Return the page as lines for a terminal of a width."""
    return [
        line
        for row in rows
        for i, text in enumerate(row.lines)
        for line in details.wrapped(row.head * (not i), text, MARGIN, width)
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _yours(text: str) -> str:
    """Return, for a steward, the lead's words on the site's table."""
    return _sentence(f"your {text[4:]}" if text.startswith("its ") else text)


# who asks what -------------------------------------------------------------------------------


def _who(facts: Facts) -> Iterator[Row]:
    plan = facts.terms.plan
    by = facts.lead + f", {facts.organisation}" * bool(facts.organisation)
    verified = f"; the signature is verified{f' as of {facts.as_of}' if facts.as_of else ''}."
    yield Row("Asked by", (by + verified,))
    yield Row("Question", (plan.question or "The study gives none.",))
    for key, label in words.GOVERNANCE.items():
        if key in plan.governance and key != "recipients":
            yield Row(label, (plan.governance[key],))
    told = plan.governance.get("recipients", "").rstrip(".")
    more = f"; {told}" if told else ""
    yield Row("Recipients", (f"{by} (through the coordinator){more}.",))
    named = {**{k: v.lower() for k, v in words.GOVERNANCE.items()}, **ELSE}
    if gone := [said for key, said in named.items() if key not in plan.governance]:
        yield Row("Not stated", (f"{words.listed(gone)}: the study file says nothing of this.",))


def _ranked(facts: Facts) -> Iterator[Row]:
    """Yield the site's place in the ranking, where it is asked again."""
    if not facts.ranking:
        return
    plan, lines = facts.terms.plan, list[str]()
    arms = {arm.name: arm for arm in plan.arms}
    for place in ranked.read(facts.ranking, facts.terms, facts.site):
        arm = arms[place["arm"]]
        lines += ranked.in_words(place, arm.title, str(arm.settings.get("user", "")))
    yield Row("Your rank", tuple(lines))
    by = f" by {facts.answer_by}" if facts.answer_by else ""
    yield Row(
        "Second consent",
        (
            "Your hospital took part until now. Nothing was trained together yet. Approve to go "
            f"on, or refuse to withdraw; without an answer{by} your hospital has withdrawn. What "
            "left until now stays with the coordinator.",
        ),
    )


def _what(facts: Facts) -> Iterator[Row]:
    terms, plan = facts.terms, facts.terms.plan
    outcome, dictionary = terms.outcome, terms.dictionary
    used, rest, aside = details.uses(plan, dictionary, outcome)
    kind = kind_of(plan.task)
    lines = [f"{kind.use.capitalize()} {words.of(len(used), 'column')}: {_named(used)}."]
    if outcome is not None and not kind.verb and not plan.kind.joint:
        lines.append(f"Left aside: {words.listed(sorted(set(outcome.columns)))}.")
    elif outcome is not None and kind.verb:
        lines.insert(0, f"{kind.verb} {details.outcome_of(outcome, dictionary)}.")
    lines += [f"{name} is used as the {role}." for name, role in aside.items()]
    if rest:
        lines.append(f"Only read, checked or counted from: {_named(rest)}.")
    yield Row("Columns", (*lines, "All other columns of your table are dropped."))
    n = "not counted, as your table was not taken" if facts.checked else "--check counts them"
    if facts.table is not None:
        n = f"{words.count(len(facts.table.frame))} of your table"
    yield Row("Patients", (f"Rows of data set {facts.dataset!r} that fit the study: {n}.",))


def _named(variables: Sequence[Variable]) -> str:
    """Return columns by name, those that identify a person first and marked; some of many."""
    first = sorted(variables, key=lambda v: not v.identifier)  # none of them is left out
    names = [v.name + " (IDENTIFIES A PERSON)" * v.identifier for v in first]
    if len(names) > COLUMNS:
        names = [*names[:COLUMNS], f"{len(names) - COLUMNS} more, which the details name"]
    return ", ".join(names) or "none"


def _methods(plan: Plan) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for arm in plan.arms if plan.forget is None else leaving.made_again(plan):
        where = {
            "isolated": "your rows alone, at your site",
            "centralised": "left out: it would need all rows in one place",
        }.get(arm.scope, "all sites")
        title = registry.find(arm.method).title
        if arm.scope == "isolated":  # which is pooled with nothing
            title = title.partition(", exactly")[0]
        alike.setdefault(f"{title} ({where})", []).append(arm.title)
    for what, titles in list(alike.items())[:MODELS]:
        yield f"- {words.some(titles, NAMED)}: {what}."
    if (more := len(alike) - MODELS) > 0:
        yield f"- {_others(more)}: see the details."
    for kind in asked_of(plan):
        yield f"- Besides: {registry.find(arm_of(kind).method).title}."
    if plan.forget is not None:
        yield leaving.fits(plan)
        return
    again = ", and once on all rows" * plan.final
    yield (
        f"Each is trained {'once' if plan.repeats == 1 else f'{plan.repeats} times'} on "
        f"{words.percent(1 - plan.test_fraction)} of the rows{again}, and judged on the others."
    )


# what leaves ---------------------------------------------------------------------------------


def _leaves(facts: Facts) -> Iterator[str]:
    terms, plan = facts.terms, facts.terms.plan
    found = asking.of_study(plan, terms.outcome)
    cell = max(plan.min_cell, facts.policy.min_cell)
    shown = f"counts of 1 to {cell - 1} patients are hidden" if cell > 1 else "no count is hidden"
    table_one = f" In Table 1 {shown}." * (plan.forget is None)
    yield f"No row of your table, and no prediction for a patient.{table_one}"
    own = [s for s in found if s.verb == "gather"]
    groups = (
        (describe.STEPS, "Table 1 (rows, missing values, levels, means, quartiles)"),
        (counting.STEPS, "rows and events"),
        (judging.STEPS, "how good each model is on your rows held back"),
    )
    runs = {step.run for steps, _ in groups for step in steps}
    said = [name for steps, name in groups if any(s in steps for s in own)]
    if said:
        yield f"- Readable as your site's own: {words.listed(said)}."
    for step in (s for s in own if s.run not in runs):
        about = plain_words((step.run.__doc__ or "").strip().partition("\n")[0])
        yield f"- READABLE AS YOUR SITE'S OWN: {about}"
    masked, judged = plan.privacy.secure != "false", plan.forget is None
    aims = "to prepare columns" + (", to train and to judge" if judged else " and to train")
    yield (
        f"- Sums over sites, {aims}. "
        + (
            "From three sites on, your part is masked: nobody can read it alone."
            if masked
            else "THE STUDY SWITCHES MASKS OFF: the coordinator's computer can read your part."
        )
    )
    for title, clause in _trained(plan):
        yield f"- To train {title}: {clause}"
    if plan.again is not None:
        users = sorted({str(a.settings.get("user", "")) for a in plan.arms if ranks(a)})
        yield (
            f"- Hospitals are ranked first. Each is told its own rank alone and, for the rows of "
            f"{words.listed(users)}, two mean losses with three significant digits: of the model "
            f"made there, and of its own one. Then you are asked again; nothing is trained "
            f"together before you approve that."
        )


def _trained(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what training reveals, once for models that reveal the same."""
    said: dict[str, list[str]] = {}
    arms: list[Arm] = [a for a in plan.arms if a.scope == "sites"]
    if plan.forget is not None:
        arms = leaving.made_again(plan)
    for arm in [*arms, *(arm_of(kind) for kind in asked_of(plan))]:
        text = details.reveals(arm, registry.find(arm.method), plan.privacy.dp)
        said.setdefault(_clauses(text), []).append(arm.title)
    for clause, titles in list(said.items())[:MODELS]:
        yield words.some(titles, NAMED), clause
    if (more := len(said) - MODELS) > 0:
        yield _others(more), "see the details."


def _others(n: int) -> str:
    return words.of(n, "other kind of model", "other kinds of models")


def _clauses(text: str) -> str:
    """Return the first clauses of a method's disclosure, and that others are left out."""
    whole = " ".join(text.split())
    if len(whole) <= CLAUSE + 40:
        return whole
    cuts = [i + 1 for i, c in enumerate(whole) if c in ";." and whole[i + 1 : i + 2] == " "]
    cut = max((c for c in cuts if c <= CLAUSE), default=min(cuts, default=len(whole)))
    if cut == len(whole):
        return whole
    return f"{whole[: cut - 1]}; and more, in the details."


# privacy and risks ---------------------------------------------------------------------------


def fits(plan: Plan) -> int:
    """Return a study's number of private fits, each of which spends its ε."""
    return sum(arm.scope == "sites" for arm in plan.arms) * (plan.repeats + plan.final)


def _privacy(plan: Plan, account: Account, dataset: str) -> Iterator[str]:
    dp, left = plan.privacy.dp, account.left
    if dp is None:
        yield "Differential privacy: none. No noise is added, and no privacy budget is spent."
    else:
        n, what = fits(plan), "patient" if dp.unit == "record" else "site"
        yield (
            f"ε {dp.epsilon:g}, δ {dp.delta:g} of each {what} in each fit; "
            f"{words.of(n, 'fit')}, so ε {dp.epsilon * n:g}, δ {dp.delta * n:g} in all, and again "
            f"for a fit that is begun anew. Table 1 and how good a model is have no noise."
        )
        asked = Decimal(repr(dp.epsilon)) * n, Decimal(repr(dp.delta)) * n
        if left is not None and (left.epsilon < asked[0] or left.delta < asked[1]):
            yield "THE BUDGET THAT IS LEFT IS LESS: fits will be refused once it is spent."
    if left is None or account.allowed is None:
        yield f"Budget of data set {dataset!r}: your site has set none" + (
            ", so every fit with noise is refused." if dp is not None else "."
        )
        return
    yield (
        f"Budget of data set {dataset!r}: {_amount(left)} left of "
        f"{_amount(Amount(account.allowed.epsilon, account.allowed.delta))}."
    )


def _amount(amount: Amount) -> str:
    return f"ε {amount.epsilon.normalize():f} and δ {amount.delta.normalize():g}"


def _units(plan: Plan) -> str:
    """Say where the study goes on although a site seems to have another unit."""
    named = words.listed([repr(name) for name in plan.units.columns])
    which = "any column" if plan.units.every else named
    return (
        f"The study goes on where {which} looks like another unit at one site than at the others; "
        f"its lead says that the numbers are right. Look whether yours are."
    )


def _risks(facts: Facts) -> Iterator[str]:
    plan, policy = facts.terms.plan, facts.policy
    yield from (f"- {line}" for line in (*_memory(facts), *_tree_leaves(plan)))
    if plan.privacy.dp is None:
        yield (
            "- Without noise nothing bounds what results tell of one patient to someone who knows "
            "much about the others."
        )
    if plan.units != NOTHING:
        yield f"- {_units(plan)}"
    fewest = policy.secure_sum_sites
    if plan.privacy.secure == "false":
        yield "- The coordinator's computer can read your part of every sum (no masks)."
    elif policy.secure_sum != "required":
        yield (
            f"- With fewer than {fewest} sites a sum is not masked, and the coordinator's computer "
            f"can read your part (secure_sum in node.toml can forbid it)."
        )
    if policy.differencing == "allow":
        yield (
            "- Your node lets studies of nearly the same patients pass (differencing: allow): "
            "together they can tell the few in which they differ."
        )
    yield "- Report and ledger name your site."


def _tree_leaves(plan: Plan) -> Iterator[str]:
    """Name the fewest rows in a leaf of each model of trees."""
    if plan.privacy.dp is not None:
        return
    of = {a.title: rows_of_leaf(a.method, a.configured(), plan.min_cell) for a in plan.arms}
    said = [f"{title} {words.count(n)}" for title, n in of.items() if n]
    if said:
        yield (
            f"A leaf of a tree holds the outcome of a group of training rows. Fewest rows of a "
            f"leaf: {words.some(said, NAMED)}."
        )


def _memory(facts: Facts) -> Iterator[str]:
    """Name models that may hold single rows; with the table, of how many rows."""
    terms, plan, table = facts.terms, facts.terms.plan, facts.table
    features = terms.dictionary.features(terms.outcome)
    frame = pd.DataFrame(columns=[v.name for v in features]) if table is None else table.frame
    columns = columns_of(features, frame)
    classes = len(levels_of(terms.outcome, terms.dictionary))
    sizes = {
        arm.title: free_parameters(arm.method, arm.configured(), columns, classes)
        for arm in plan.arms
        if arm.scope == "sites"
    }
    sizes = {title: n for title, n in sizes.items() if n}
    if not sizes:
        return
    more = " The noise bounds what it holds of one." if plan.privacy.dp is not None else ""
    if any(plan.is_tuned(arm) for arm in plan.arms):
        more += " Settings that are chosen by trying may give larger models than said here."
    bears = (
        f"A model with fewer than {ROWS_EACH} training rows for each free parameter may memorise "
        f"single patients, whose data someone who has it could then read out of it.{more}"
    )
    said = [f"{title} about {words.count(n)}" for title, n in sizes.items()]
    if table is None:
        most = max(sizes.values())
        yours = "yours were not counted" if facts.checked else "--check counts yours"
        yield (
            f"{bears} Free parameters: {words.some(said, NAMED)}. The largest needs "
            f"{words.count(ROWS_EACH * most)} training rows at your site; {yours}."
        )
        return
    rows = round((1 - plan.test_fraction) * len(table.frame))
    beyond = [f"{t} about {words.count(n)}" for t, n in sizes.items() if n > most_parameters(rows)]
    if not beyond:
        yield (
            f"{bears} Here there are {words.count(rows)} training rows, enough for each model "
            f"(free parameters: {words.some(said, NAMED)})."
        )
        return
    rule = (
        "Your node refuses such a study"
        if facts.policy.parameters_per_row == "refuse"
        else "Your node lets it pass"
    )
    yield (
        f"MAY HOLD SINGLE ROWS: {words.some(beyond, NAMED)} free parameters; here there are "
        f"{words.count(rows)} training rows. {bears} {rule} (parameters_per_row)."
    )


# earlier studies, until when -----------------------------------------------------------------


def _earlier(facts: Facts) -> Iterator[str]:
    found = facts.earlier
    if not found:
        yield "No earlier study here had a column or a patient of this one."
        return
    terms = facts.terms
    all_ = len(Asked.of(terms.plan, terms.dictionary, terms.outcome).columns)
    told = sum(e.replies for e in found)
    yield (
        f"{words.of(len(found), 'study', 'studies')} with columns or patients of this one ran "
        f"here; {words.of(told, 'reply', 'replies')} left. What studies tell of the same patients "
        f"adds up."
    )
    for e in found[:STUDIES]:
        if e.study == facts.entry.study:
            who = "This same study"
        else:
            who = f"{e.name} ({record.short(e.study)}), of {e.lead}"
        some = len(e.columns) < all_
        same = f"{len(e.columns)} of the" if some else "the same"
        rows = "" if e.rows is None else f", {words.count(e.rows)} patients"
        rows += "" if e.shared is None else f", {words.count(e.shared)} of them known again here"
        runs = words.of(e.runs, "run") if e.runs else "runs not counted"
        last = f", the last on {e.last[:10]}" if e.last else ""
        by = f"; {words.some(e.methods, 3)}" if e.methods else ""
        yield (
            f"- {who}: {same} {words.of(all_, 'column')}"
            + f" ({words.some(e.columns, 5)})" * some
            + f"{rows}; {runs}; "
            f"{words.of(e.replies, 'reply', 'replies')} left{last}, {e.own} of them readable as "
            f"your site's own{by}."
        )
    if (more := len(found) - STUDIES) > 0:
        yield f"- {more} more; `fedcohort node ledger` says what left in each."
    if any(e.shared == 0 for e in found):
        yield (
            "A patient whose row was changed since is not known again, unless your dictionary "
            "names identifiers."
        )


def _until(facts: Facts) -> str:
    made, policy = facts.entry.decision, facts.policy
    if made is not None and made.until and not facts.entry.lapsed:
        return f"{made.until}, for {record.runs(made, facts.entry.used)}."
    return (
        f"If approved today: {decisions.until(policy.approval_days)}, for "
        f"{words.of(policy.approval_runs, 'run')}, unless --until and --runs say otherwise. Then "
        f"it waits again."
    )
