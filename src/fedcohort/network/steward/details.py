"""The details of a study in plain words, below the steward's page (`approval`).

Columns and their use; what is computed and what each method reveals with these settings; what
leaves in each step, under the ledger's names, and who sees it; how often; what is judged; which
counts are hidden; what is written, and where. The source is the study's text alone, no table row.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.variable import Variable
from fedcohort.network.state.policy import COLUMN_SETTINGS
from fedcohort.protocol import Dp, registry
from fedcohort.protocol.method import Method
from fedcohort.report import words
from fedcohort.report.kinds import kind_of
from fedcohort.study.at_site import asking
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.step_words import plain_words
from fedcohort.study.run.extras import arm_of, asked_of

#: Characters in a line, and where the text beside a heading begins.
WIDTH, MARGIN = 96, 12
#: Smallest width of the text beside a heading.
NARROWEST = 20
#: Letters that look like space, and marks that a letter can have.
BLANK, MARKS = frozenset("\u115f\u1160\u2800\u3164\uffa0"), 2
#: Settings that say how often a method goes round, or how often at most.
ROUNDS = ("rounds", "steps", "max_iter", "iterations")


#: A heading, "" where the one before goes on, and a paragraph; indented ones belong to the last.
Row = tuple[str, str]


def as_lines(terms: Terms, min_cell: int | None = None, width: int = WIDTH) -> list[str]:
    """Return a study's details in plain words, as lines of a width; see `in_rows`."""
    rows = in_rows(terms, min_cell)
    return [line for head, text in rows for line in wrapped(head, text, MARGIN, width)]


def in_rows(terms: Terms, min_cell: int | None = None) -> list[Row]:
    """Return a study's details in plain words, as paragraphs with their headings.

    Parameters
    ----------
    min_cell : the site's own, where it is stricter.
    """
    plan, outcome, dictionary = terms.plan, terms.outcome, terms.dictionary
    cell = max(plan.min_cell, min_cell or 0)
    rows: list[Row] = [
        *_sought(plan, outcome, dictionary),
        *_columns(plan, dictionary, outcome),
        *_methods(plan),
        *_besides(plan),
        *_steps(plan, outcome),
        ("how often", _rounds(plan)),
        ("judged", _judged(plan)),
        ("hidden", _hidden(cell)),
        ("noise", _noise(plan)),
        *_written(plan),
    ]
    return [(head, printable(text)) for head, text in rows]


def printable(text: str) -> str:
    """Return a text that cannot move a terminal's cursor or change the order of letters.

    The study's words stand between lines that a steward relies on. So other spaces are removed too
    (they could place words at a line's beginning), and marks beyond two per letter (they would
    reach
    into other lines).
    """
    out: list[str] = []
    marks = 0
    for c in " ".join(text.split("\n")):
        marks = marks + 1 if unicodedata.category(c) in ("Mn", "Me") else 0
        out.append(c if c.isprintable() and c not in BLANK and marks <= MARKS else "?")
    return "".join(out)


def _sought(plan: Plan, outcome: Outcome | None, dictionary: Dictionary) -> Iterator[Row]:
    """Say the target: predictions, the classes that judge groups, or coordinates of a patient."""
    kind = kind_of(plan.task)
    if plan.kind.joint:
        yield ("sought", _virtual(outcome))
        return
    if not kind.verb:
        yield ("sought", _coordinates(outcome))
        return
    if not kind.judged:
        yield ("predicted", outcome_of(outcome, dictionary))
        return
    said = "groups of patients who are alike; nothing is predicted."
    if outcome is not None:
        said += (
            f" Groups are judged by {outcome_of(outcome, dictionary)}; that is looked at once they "
            f"are found, and has no part in them."
        )
    yield ("sought", said)


def _virtual(outcome: Outcome | None) -> str:
    """Say the use of a model that draws rows, and of the outcome among its columns."""
    said = (
        "virtual patients: rows that a model draws, with the columns below; nothing is predicted. "
        "The model leaves the network. Each hospital compares its rows with patients held back."
    )
    if outcome is not None:
        said += f" {words.listed([repr(c) for c in outcome.columns])} are columns like any other."
    return said


def _coordinates(outcome: Outcome | None) -> str:
    """Say the use of latent coordinates, and of a column that no fit sees."""
    said = (
        "a few numbers (latent coordinates) that stand for all columns of a patient, and fill in "
        "what is missing; nothing is predicted. They are judged by how near the columns of "
        "patients held back are to what these numbers give back, and to what is filled in for a "
        "view from the others."
    )
    if outcome is not None:
        one = len(outcome.columns) == 1
        said += (
            f" {words.listed([repr(c) for c in outcome.columns])} {'is' if one else 'are'} left "
            f"aside: no model sees {'it' if one else 'them'}, and nothing is judged by "
            f"{'it' if one else 'them'}."
        )
    return said


def outcome_of(outcome: Outcome | None, dictionary: Dictionary) -> str:
    """Say the predicted outcome."""
    if outcome is None:
        return "nothing; the study describes"
    if isinstance(outcome, Survival):
        unit = outcome.time_unit(dictionary)
        late = f"; patients are counted from {outcome.entry!r} on" if outcome.entry else ""
        return (
            f"the time until an event: {outcome.time!r}" + f" in {unit}" * bool(unit)
            + f", and whether it was seen, {outcome.event!r}{late}"
        )  # fmt: skip
    kind = {"binary": "yes or no", "category": "one of several classes", "count": "a count"}
    kind["ordinal"] = "one of several classes in an order"
    return f"{outcome.y!r}: {kind.get(outcome.type, 'a number')}"


def uses(
    plan: Plan, dictionary: Dictionary, outcome: Outcome | None
) -> tuple[list[Variable], list[Variable], dict[str, str]]:
    """Return columns to learn from, those only read, and by name those that settings use."""
    aside = {
        str(value): key
        for arm in plan.arms
        for key, value in arm.configured().items()
        if key in COLUMN_SETTINGS and value
    }
    if plan.kind.joint and outcome is not None:  # its columns are features
        dictionary, outcome = dictionary.with_features(outcome), None
    taken = set(outcome.columns if outcome is not None else ())
    used = [v for v in dictionary.features(outcome) if v.name not in aside]
    rest = [
        v for v in dictionary.variables.values()
        if v not in used and v.name not in taken and v.name not in aside
    ]  # fmt: skip
    return used, rest, aside


def _columns(plan: Plan, dictionary: Dictionary, outcome: Outcome | None) -> Iterator[Row]:
    used, rest, special = uses(plan, dictionary, outcome)
    yield ("columns", f"{words.of(len(used), 'column')} to {kind_of(plan.task).use}:")
    yield ("", "; ".join(_variable(v) for v in used) + "." if used else "none.")
    if views := list(dict.fromkeys(v.view for v in used if v.view)):
        yield (
            "", f"They are of {words.of(len(views), 'view')} ({words.listed(views)}); a hospital's "
            f"table may lack all columns of one.",
        )  # fmt: skip
    for name, role in special.items():
        yield ("", f"{name!r} is used as the {role}.")
    if rest:
        listed = "; ".join(_variable(v) for v in rest)
        yield ("", f"Only checked, or counted from, in no model: {listed}.")
    yield ("", "Other columns of your table are dropped when it is opened for the study.")


def _variable(v: Variable) -> str:
    """Return a column's name with its entry in the dictionary."""
    about = ", ".join(part for part in (v.description, v.unit) if part)
    return f"{v.name} ({about})" if about else v.name


def _methods(plan: Plan) -> Iterator[Row]:
    """Say the computations, and each method's disclosure with its settings."""
    yield ("computed", f"{words.of(len(plan.arms), 'model')}, each compared:")
    for i, arm in enumerate(plan.arms, 1):
        method = registry.find(arm.method)
        given = {k: v for k, v in {**arm.settings, **arm.preprocess}.items() if k != "name"}
        yield ("", f"{i}. {arm.title}: {method.title} ({method.name}).")
        if given:
            yield ("", f"   Settings: {words.value(given)}.")
        if arm.grid or plan.is_tuned(arm):
            yield ("", f"   Chosen by trying: {words.value(dict(arm.grid) | plan.space(arm))}.")
        yield ("", f"   What leaves: {reveals(arm, method, plan.privacy.dp)}")


def _besides(plan: Plan) -> Iterator[Row]:
    """Say the analyses besides models: differences of sites, and remarks on each."""
    for i, kind in enumerate(asked_of(plan)):
        arm = arm_of(kind)
        method = registry.find(arm.method)
        yield ("besides" * (not i), f"{method.title} ({method.name}).")
        yield ("", f"   What leaves: {reveals(arm, method, plan.privacy.dp)}")


def reveals(arm: Arm, method: Method, dp: Dp | None) -> str:
    """Return the method's words on one arm's disclosure, with its noise."""
    if arm.scope == "isolated":
        return (
            "to train, nothing: it is fitted to your rows alone, here. How good it is on your "
            "held-back rows is told."
        )
    if arm.scope == "centralised":
        return "nothing: it would need all rows in one place, and is left out."
    return method.revealed(method.configure(arm.configured()), dp)


def _steps(plan: Plan, outcome: Outcome | None) -> Iterator[Row]:
    """Say the replies of each step, and who sees them."""
    found = asking.of_study(plan, outcome)
    yield (
        "replies",
        "The coordinator may ask for what stands here, which is what these methods need with these "
        "settings; your node refuses all else. No reply holds a row of your table.",
    )
    for verb, head in (
        ("gather", "SHOWN FOR YOUR SITE ALONE:"),
        ("sum", "Shown as a sum over all sites:"),
    ):
        yield ("", head)
        for step in found:
            if step.verb == verb:
                about = plain_words((step.run.__doc__ or "").strip().partition("\n")[0])
                fields = [words.spaced(f) for f in step.reply.__dataclass_fields__]
                name = f"- {words.spaced(step.name)} ({words.listed(fields)})"
                yield ("", f"{name}: {about}")
    seen = "the coordinator's computer can read your part of each sum."
    yield (
        "",
        f"The study switches masks off (secure_aggregation: false): {seen}"
        if plan.privacy.secure == "false"
        else "Your part of a sum over three sites or more leaves masked: the coordinator's "
        f"computer can read the sum alone. Over two, {seen}",
    )


def _noise(plan: Plan) -> str:
    """Say the requested differential privacy."""
    dp = plan.privacy.dp
    if dp is None:
        return "None is added: the study asks for no epsilon, and spends no privacy budget."
    what = "patient" if dp.unit == "record" else "site"
    return (
        f"Added by your node to each reply of training: epsilon {dp.epsilon:g}, delta "
        f"{dp.delta:g} of each {what} in each fit, out of your site's privacy budget. Table 1 and "
        f"how well a model predicts are told without noise."
    )


def _rounds(plan: Plan) -> str:
    """Say how often sites are asked, as far as it is known beforehand."""
    said: list[str] = []
    for arm in plan.arms:
        if arm.scope != "sites":
            continue
        method = registry.find(arm.method)
        config = method.configure(arm.configured())
        key = next((k for k in ROUNDS if isinstance(getattr(config, k, None), int)), None)
        if key is None:
            said.append(f"{arm.title}: until it settles, not known beforehand")
        else:
            at_most = "" if key in ("rounds", "steps") else "at most "
            said.append(f"{arm.title}: {at_most}{words.of(getattr(config, key), 'round')}")
    tuned = any(plan.is_tuned(a) for a in plan.arms)
    return (
        f"{'; '.join(said) or 'no model is trained over sites'}. All of it "
        f"{words.of(plan.repeats, 'time')}, each with other rows held back"
        + ", and once more over all your rows, for the final model" * plan.final
        + ", and more often to choose settings" * tuned
        + "."
    )


def _judged(plan: Plan) -> str:
    share = words.percent(plan.test_fraction)
    names = words.listed([words.metric(m).label for m in plan.metrics])
    return (
        f"{share} of your rows, drawn here at random, are held back from training; on them the "
        f"models are judged by {names}. Counts and sums for these leave the site, no prediction "
        f"for a patient does."
    )


def _hidden(cell: int) -> str:
    if cell <= 1:
        return "No count is hidden: privacy.min_cell is 1."
    return (
        f"Counts of patients from 1 to {cell - 1} are not shown on their own in what is published "
        f"(min_cell {cell})."
    )


def _written(plan: Plan) -> Iterator[Row]:
    yield (
        "written",
        "Here, in the node's folder 'state': the study, your decision, a ledger of what left, a "
        "log without values, and, while the study runs, the replies and what models remember here.",
    )
    if plan.feedback:
        yield (
            "", "Also here, in 'state/feedback': what is off in your columns, in words. It is for "
            "the people at your site, and is told to nobody else.",
        )  # fmt: skip
    if names := [arm.name for arm in plan.arms if arm.every]:
        yield (
            "", f"Also here, in 'state/models': your site's own model by {words.listed(names)}, "
            "for 'fedcohort predict'. It is told to nobody else.",
        )  # fmt: skip
    yield (
        "",
        "At the coordinator and the lead: the models, the metrics, the course of training, and a "
        "ledger of all replies by shape and size.",
    )


def wrapped(head: str, text: str, margin: int = MARGIN, width: int = WIDTH) -> list[str]:
    """Return text in lines beside its heading, none wider than `width`."""
    lead = len(text) - len(text.lstrip())
    indent = " " * (margin + lead + 2 * text.startswith("- "))
    # letters that take two places are counted as two
    counted = "".join(
        c + "\0" * (unicodedata.east_asian_width(c) in ("W", "F")) for c in text.lstrip()
    )
    lines = textwrap.wrap(
        counted,
        max(width - ("\0" in counted), len(indent) + NARROWEST),  # a pair may be cut apart
        initial_indent=f"{head:<{margin}}" + " " * lead if margin else "",
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [line.replace("\0", "") for line in lines]


def summary(entries: Sequence[Mapping[str, str]]) -> list[str]:
    """Return one line a study for the list of them: columns as wide as they need to be."""
    if not entries:
        return ["No study has come to this site."]
    keys = tuple(entries[0])
    wide = {k: max(len(k), *(len(e[k]) for e in entries)) for k in keys}
    rows = [{k: k for k in keys}, *entries]
    return ["  ".join(f"{row[k]:<{wide[k]}}" for k in keys).rstrip() for row in rows]
