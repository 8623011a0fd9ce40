"""Sessions: the federations of a study over a network, each with a text as name.

    describe            Table 1, once
    count               publishable rows and events of each site, once
    shift               how sites differ, over the rows of Table 1, if the study asks for it; once
    feedback            remarks on each site, which the site keeps; likewise
    rank-r0000-a01      ranking of the sites by arm 1, over the training rows of the first repeat,
                        if the study asks for consent after it; nothing is trained together
    fit-r0003-a01       arm 1 of repeat 3: its steps see the training rows
    final-r0000-a01     arm 1 over all rows of every site, if the study ends with such a fit
    forget-r0000-a01, forget-all-r0000-a01    of a study that forgets hospitals (`forget:`): models
                        1 of the first repeat and of all rows, from what the sites kept of them; it
                        has these sessions, the fits of both, and no others
    judge-r0003-a01     its model on the blind rows; for censoring, the training rows' outcome,
                        except in a private study
    alone-r0003-a00     each site evaluates a model of its own: fitted on its training rows alone,
                        or, of an arm with `user: all`, kept by it at the end of its fit
    tune-r0003-a01-n00007   fit 7 (from 0) of tuning; with row-kfold without the rows of fold 7
                            modulo the number of folds
    score-r0003-a01-n00001  evaluation of candidate 1 (from 0) on the left-out training rows

A site makes the `Host` of a session from the study and its own table; only the text is sent. A
session may ask only what the study's settings need (`asking`).

Revealed: what these steps declare.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from fedcohort.data import describe
from fedcohort.privacy.guard import SiteGuard, Tally
from fedcohort.protocol import Dp, Task, VerbRefused, registry
from fedcohort.protocol.host import Host
from fedcohort.protocol.once import InMemory, Once
from fedcohort.study.at_site import asking, counting, judging
from fedcohort.study.at_site.alone import Alone
from fedcohort.study.at_site.consent import Consent, most_numbers
from fedcohort.study.at_site.forgetting import FORGETS, Kept, not_kept, only_among, place_of
from fedcohort.study.at_site.keeping import KeptRows, TriedRows, notes_of, place, place_tried
from fedcohort.study.at_site.table import Halves, SiteTable
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.forget import keeps as keeps_parts
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.privacy import FEWEST
from fedcohort.study.file.second_consent import ranking_of, ranks
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.own_models import Keeper, OwnModels, keeper
from fedcohort.study.run import private
from fedcohort.study.run.extras import KINDS, arm_of, asked_of
from fedcohort.study.run.pieces import FINAL, has_final
from fedcohort.study.run.tune import ROW_FOLDS, folds_of
from fedcohort.study.sites.layout import seed_of

#: Kinds for tuning, on training rows only.
TRIED = ("tune", "score")
#: Kinds that come before the second consent, where a study asks for one.
FIRST = ("describe", "count", *KINDS, "rank")
#: Kinds that are asked once; of `KINDS` only those that the study asks for.
ONCE = ("describe", "count", *KINDS)
_TEXT = re.compile(
    r"(rank|fit|final|forget|forget-all|judge|alone|tune|score)"
    r"-r([0-9]{4})-a([0-9]{2})(?:-n([0-9]{5}))?"
)


@dataclass(frozen=True)
class Session:
    """One federation of a study.

    Attributes
    ----------
    kind : "describe", "count", "shift", "feedback", "rank", "fit", "final", "forget",
        "forget-all", "judge", "alone", "tune" or "score".
    repeat, arm : the split, and the index of the plan's arm.
    number : of a fit in tuning, or of a candidate; −1 otherwise.
    """

    kind: str
    repeat: int = 0
    arm: int = 0
    number: int = -1

    @property
    def text(self) -> str:
        """The session's name at sites; valid as a file name."""
        if self.kind in ONCE:
            return self.kind
        tried = f"-n{self.number:05d}" if self.number >= 0 else ""
        return f"{self.kind}-r{self.repeat:04d}-a{self.arm:02d}{tried}"

    @classmethod
    def parse(cls, text: str, terms: Terms) -> Session:
        """Read a session's name.

        Raises
        ------
        VerbRefused : the study has no such session.
        """
        ordinary = terms.plan.forget is None
        if ordinary and text in ONCE and (text not in KINDS or text in asked_of(terms.plan)):
            return cls(text)
        found = _TEXT.fullmatch(text)
        if found is not None:
            number = -1 if found[4] is None else int(found[4])
            session = cls(found[1], int(found[2]), int(found[3]), number)
            if _is_of(session, terms):
                return session
        raise VerbRefused("the study has no session of that name; a site answers no other.")


def _is_of(session: Session, terms: Terms) -> bool:
    plan = terms.plan
    if session.repeat >= plan.repeats or session.arm >= len(plan.arms):
        return False
    arm = plan.arms[session.arm]
    if plan.forget is not None or session.kind in FORGETS:
        return plan.forget is not None and _forgets(session, plan, arm)
    if (session.kind in TRIED) != (session.number >= 0):
        return False
    if session.kind == "rank":
        return plan.again is not None and session.repeat == 0 and ranks(arm)
    if session.kind in TRIED:
        if not (plan.is_tuned(arm) and arm.scope == "sites"):
            return False
        trials = plan.tune.get("trials")
        return session.number < most_numbers(session.kind, arm, trials)
    if session.kind == "final":
        return session.repeat == 0 and has_final(plan, arm)
    if session.kind in ("alone", "judge"):
        return (session.kind == "alone") == arm.apart
    return arm.scope != "isolated"


def _forgets(session: Session, plan: Plan, arm: Arm) -> bool:
    """Return whether a study that forgets hospitals has such a session."""
    if session.repeat or session.number >= 0 or arm.scope != "sites" or arm.every:
        return False
    if plan.forget is None or plan.forget.arm not in ("", arm.name):
        return False
    if session.kind in FORGETS and registry.find(arm.method).forget is None:
        return False
    kind = FORGETS.get(session.kind, session.kind)
    return kind == "fit" or (kind == "final" and has_final(plan, arm))


def kept_of(text: str, terms: Terms) -> str:
    """Return the name under which a site keeps what a session left; "" if it keeps nothing of it.

    Only of `keep: true`, and of fits whose models a study leaves.
    """
    try:
        found = Session.parse(text, terms)
    except VerbRefused:
        return ""
    arm = terms.plan.arms[found.arm]
    if found.kind not in ("fit", "final", *FORGETS) or found.repeat:
        return ""
    if not (terms.plan.keep and keeps_parts(arm)):
        return ""
    return place_of(found.kind, found.arm)


def open_session(
    terms: Terms,
    table: SiteTable,
    session: str,
    min_cell: int,
    spending: Callable[[str, Dp], Tally] | None = None,
    heard: Callable[[Sequence[str]], None] | None = None,
    once: Callable[[str], Once] | None = None,
    models: OwnModels | None = None,
    parts: Callable[[str], Kept] | None = None,
) -> Host:
    """Return one site's side of a session.

    Parameters
    ----------
    table : the site's, checked against the same terms.
    min_cell : the site's own; the larger of it and the study's counts.
    spending : (session, cost of a fit) → a node's account of private fits; None in a rehearsal,
        whose noise follows from the study's seed.
    heard : takes the site's feedback, in lines for the people there.
    once : session → memory of first questions beyond it.
    models : the site's own models of this study (`user: all`).
    parts : name (`kept_of`) → what the site keeps of the fit whose sites are forgotten.

    Raises
    ------
    VerbRefused : the study has no such session.
    Refused : the site keeps nothing of a fit from which others are to be forgotten.
    SettingError : a private fit is not possible.
    """
    asked = Session.parse(session, terms)
    plan, least = terms.plan, max(min_cell, terms.plan.min_cell)
    known = InMemory() if once is None else once(asked.text)
    if asked.kind == "describe":
        consent = Consent(terms, asked.kind, once=known)
        return Host(table.site, table.frame, describe.STEPS, plan.seed, consent, once=known)
    if asked.kind == "count":
        consent = Consent(terms, asked.kind)
        return Host(table.site, table, counting.STEPS, plan.seed, consent)
    if asked.kind in KINDS:
        arm = arm_of(asked.kind)
        consent = Consent(terms, asked.kind, arm, plan.seed, known)
        kept = _kept(terms, arm, table.site, heard)
        steps = asking.of_extras(asked.kind)
        # what Table 1 hides stays hidden in comparisons of the same rows
        table_one = known if once is None else once("describe")
        return Host(table.site, table.frame, steps, plan.seed, consent, kept=kept, once=table_one)
    final = asked.kind in ("final", "forget-all")
    seed, arm = seed_of(plan, FINAL if final else asked.repeat), plan.arms[asked.arm]
    fits = final or asked.kind in FORGETS
    consent = Consent(terms, "fit" if fits else asked.kind, arm, seed, known)
    if asked.kind == "rank":
        arm = ranking_of(arm)
        consent = Consent(terms, "fit", arm, seed, known)
    if asked.kind == "alone":
        mine: judging.Rows
        if arm.every:
            mine = KeptRows.of(table, asked.repeat, arm, least, models, known)
        else:
            mine = Alone.of(table, asked.repeat, arm, least)
        steps = asking.of_alone(terms.outcome, plan.task, plan.metrics)
        return Host(table.site, mine, steps, seed, consent)
    halves = table.halves(asked.repeat)
    train = table.frame if final else halves.train
    if fits or asked.kind in ("rank", "fit", "tune"):
        if asked.kind == "tune" and arm.folds == "row-kfold":
            fold = folds_of(train, terms.dictionary, seed)
            train = train[fold != asked.number % ROW_FOLDS].reset_index(drop=True)
        train = terms.aside(train)
        guard = _guard(terms, arm, table, len(train), session, spending, seed)
        size = _size(terms, train)
        keeps = None
        if arm.every and models is not None:
            notes = notes_of(plan, arm, table.site, final=final)
            name = place(plan, arm, asked.repeat, final=final)
            if asked.kind == "tune":
                name = place_tried(arm.name, asked.number)
            keeps = keeper(
                registry.find(arm.method), table.site, terms.seen, notes, partial(models.keep, name)
            )
        steps, check, first = asking.of_fit(plan, arm), consent, None
        if plan.forget is not None and asked.kind in FORGETS:
            steps = (*steps, *registry.find(arm.method).forgets)
            if keeps_parts(arm):
                if parts is None:
                    raise not_kept(table.site, "nothing is kept here")
                first = parts(place_of(asked.kind, asked.arm))
                check = only_among(first.members, plan.forget.sites, consent)
        host = Host(table.site, train, steps, seed, check, guard, kept=keeps, size=size)
        if first is not None:
            host.first = {k: a.copy() for k, a in first.state.items()}
        return host
    known = (terms.outcome, terms.dictionary, arm.method, least)
    if asked.kind == "score":
        fold = folds_of(train, terms.dictionary, seed)
        rows = judging.Rows(Halves(train, train), *known, fold)
        if arm.every:
            rows = TriedRows(Halves(train, train), *known, fold, arm.name, models)
        return Host(table.site, rows, asking.of_score(plan), seed, consent)
    rows = judging.Rows(halves, *known)
    steps = asking.of_judge(terms.outcome, plan.task, plan.metrics)
    return Host(table.site, rows, steps, seed, consent)


def over_with(terms: Terms, session: str, models: OwnModels) -> None:
    """Remove the models that a site kept for an evaluation that is over.

    They are those of a later repeat, and of a candidate's fits in tuning.
    """
    with contextlib.suppress(VerbRefused):
        asked = Session.parse(session, terms)
        arm = terms.plan.arms[asked.arm]
        if asked.kind == "alone" and asked.repeat and arm.every:
            models.drop(place(terms.plan, arm, asked.repeat))
        if asked.kind == "score" and arm.every:
            models.drop(place_tried(arm.name))


def _size(terms: Terms, train: pd.DataFrame) -> int:
    """Return a site's number of training rows, rounded up to whole cells.

    A sum may have as many parts as it has cells of `min_cell` (`pins`). Rounding up hides counts
    below `min_cell`.
    """
    cell = max(terms.plan.min_cell, 1)
    return cell * max(1, math.ceil(len(train) / cell))


def _kept(
    terms: Terms, arm: Arm, site: str, heard: Callable[[Sequence[str]], None] | None
) -> Keeper | None:
    """Return the function that puts a step's result into words for the people at the site."""
    method, plan = registry.find(arm.method), terms.plan
    words, config = method.for_site, method.configure(arm.configured())
    if words is None or heard is None:
        return None
    task = Task(
        kind=plan.task, features=(), seed=plan.seed, min_cell=plan.min_cell,
        dictionary=terms.dictionary, outcome_of=terms.outcome,
    )  # fmt: skip
    return lambda call, arguments, left: heard(words(config, task, site, left))


def _guard(
    terms: Terms,
    arm: Arm,
    table: SiteTable,
    rows: int,
    session: str,
    spending: Callable[[str, Dp], Tally] | None,
    seed: int,
) -> SiteGuard | None:
    """Return the guard of a site in a private fit; None if the fit is not private."""
    dp = terms.plan.privacy.dp
    if dp is None:
        return None
    method = registry.find(arm.method)
    config = method.configure(arm.configured())
    held = private.held(method, config, dp, terms.seen, terms.learnt)
    if spending is None:
        return private.simulated_guard(
            table.site, rows, method, config, dp, seed,
            patients=len(table.frame), demanded=held, scenario=terms.plan.scenarios[0].name,
        )  # fmt: skip
    releases = tuple(private.releases(method, config, dp))
    return SiteGuard(
        table.site, method.name, releases, dp, rows, None, spending(session, dp),
        patients=len(table.frame), held=held,
    )  # fmt: skip


#: Value of `Arm.folds` if a fold is a site.
_SITES = "centre-kfold"


def is_few(terms: Terms, session: str, step: str, sites: int, asked: int | None) -> bool:
    """Return whether the study has a sum of a step over fewer than three of the network's sites.

    A node does not trust the coordinator's number of sites: it knows its network's from its own
    kit, and the study from the approved text. So in a network of three sites or more a sum is plain
    only in

        tune    if each fold leaves a whole site out (centre-kfold) and two sites are left
        score   if the model of such a fold is evaluated on the left-out site, which reports nothing

    and is masked in every other session. To go on with two of a larger network's sites, a study
    sets `secure_aggregation: false`.

    Parameters
    ----------
    sites : number in the network.
    asked : number of asked sites, as the coordinator states it.

    Raises
    ------
    VerbRefused : the study has no such session.
    """
    if sites < FEWEST:
        return True
    found = Session.parse(session, terms)
    if found.kind not in ("tune", "score") or terms.plan.arms[found.arm].folds != _SITES:
        return False
    if found.kind == "score":
        return step in asking.HELD and asked == 1
    return sites - 1 < FEWEST and asked == sites - 1
