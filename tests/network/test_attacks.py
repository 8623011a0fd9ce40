"""A coordinator that asks an approved study for more than was approved is refused, call by call.

Real kits, a real node; the attacker has the coordinator's own kit, knows the study, and may send
whatever it likes. What it must not get: exact times where a protected grid was approved, cells
below the study's, another outcome, other columns or levels, limits that single a patient out,
tuning or arms that do not exist, and answers without end.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import struct
import time
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from fedcohort.algorithms.cox import METHOD as COX
from fedcohort.data import prepare
from fedcohort.data.describe import Reading, variables_of
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Continuous, Survival
from fedcohort.data.prepare.columns import NumberColumn
from fedcohort.data.prepare.design import Design
from fedcohort.data.timegrid import death_times
from fedcohort.data.variable import Variable
from fedcohort.network.coordinator.lead import Office, Status
from fedcohort.network.node.node import Node
from fedcohort.network.state.policy import Config
from fedcohort.protocol import InputError, Refused, Task
from fedcohort.protocol.arguments import Arguments, Parcel
from fedcohort.protocol.errors import DataError
from fedcohort.protocol.host import Call, Host
from fedcohort.protocol.views import kind_of, mark_of
from fedcohort.protocol.wire import decode, encode
from fedcohort.runtime.calls import Seen
from fedcohort.runtime.remote import remote
from fedcohort.secure.channel.callee import Callee
from fedcohort.secure.trust import Trust
from fedcohort.study.at_site.consent import Consent
from fedcohort.study.at_site.counting import STEPS
from fedcohort.study.at_site.judging import Own, Said
from fedcohort.study.file.terms import Terms
from hospital import STUDY, Hospital
from network.hall import Hall
from network.parties import SITES

FIT = "fit-r0000-a00"


@pytest.fixture
def hospital(tmp_path):
    made = Hospital(tmp_path)
    yield made
    made.node.close()


def study(made: Hospital, text: str = STUDY) -> tuple[str, Terms]:
    signed = made.signed(made.terms(text))
    return made.approved(signed), Terms.from_json(signed.terms)


def design(made: Hospital, run: str, terms: Terms) -> Design:
    """Return the preprocessing as an honest coordinator finds it, which the node answers."""
    return prepare.fit_design(
        remote(made, run, FIT), terms.dictionary, terms.outcome,
        scale="none", impute="median", min_cell=5,
    )  # fmt: skip


def seen(view: Any) -> Seen:
    kind = kind_of(view)
    return Seen(kind, mark_of(kind, view.spec), view.spec)


def step_lines(made: Hospital) -> int:
    text = (made.state / "ledger.jsonl").read_text()
    return sum("step" in json.loads(line) for line in text.splitlines())


def beyond(
    made: Hospital, run: str, session: str, step: str, verb: str, why: str, **change
) -> None:
    """Ask, and check that it is refused with a reason and that nothing more has left."""
    before = step_lines(made)
    given = {"parcel": Parcel.of(change.pop("arguments", {}))}
    view = change.pop("view", None)
    told = made.call(
        run, session=session, step=step, verb=verb, view=None if view is None else seen(view),
        **given, **change,
    )  # fmt: skip
    assert told["kind"] == "error", told
    assert told.get("reason") == "beyond", told
    assert why in told["text"], told
    assert "\n" not in told["text"]
    assert step_lines(made) == before


def unknown(made: Hospital, run: str, session: str, step: str, view: Any = None) -> None:
    """Ask each site for its own reply to a step that the study has no use for."""
    before = step_lines(made)
    told = made.call(
        run, session=session, step=step, verb="gather", parcel=Parcel.of({}),
        view=None if view is None else seen(view),
    )  # fmt: skip
    assert told["code"] == "VerbRefused", told
    assert f"does not know the step {step!r}" in told["text"]
    assert step_lines(made) == before


# exact times, small cells ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cox", "deepcox"])
def test_exact_times_are_not_told_where_a_protected_grid_was_approved(hospital, method):
    run, terms = study(hospital, STUDY.replace("method: cox", f"method: {method}"))
    view = design(hospital, run, terms)
    unknown(hospital, run, FIT, "death_times", view)


def test_exact_times_are_told_where_they_were_approved(hospital):
    run, terms = study(hospital, STUDY.replace("method: cox", "method: cox, time_grid: exact"))
    fed = remote(hospital, run, FIT).through(design(hospital, run, terms))
    assert len(fed.gather(death_times)["north"].times) > 20


@pytest.mark.parametrize("step", ["visit", "train_alone"])
def test_a_sites_own_network_is_not_told_where_only_sums_were_approved(hospital, step):
    run, terms = study(hospital, STUDY.replace("method: cox", "method: deepcox"))
    view = design(hospital, run, terms)
    unknown(hospital, run, FIT, step, view)


@pytest.mark.parametrize("asked", [5, 9, 9.999, 0, -1, True, float("-inf"), "5", [9], 11, 10**12])
def test_no_cell_below_the_studys_own_is_told_though_the_site_allows_it(hospital, asked):
    """The study says 10, the site 5: what was approved is 10."""
    run, _ = study(hospital, STUDY.replace("min_cell: 5", "min_cell: 10"))
    told = hospital.call(run, parcel=Parcel.of({"min_cell": asked}))
    assert told["kind"] == "error"
    assert told["reason"] in ("beyond", "min_cell")
    assert step_lines(hospital) == 0
    assert hospital.call(run, call=1, parcel=Parcel.of({"min_cell": 10}))["kind"] == "reply"


@pytest.mark.parametrize("asked", [1, 4, 4.9, True, float("nan"), 6, 10**12, 5.0])
def test_least_is_held_to_the_studys_min_cell_as_well(hospital, asked):
    terms = hospital.terms()
    consent = Consent(terms, "fit", terms.plan.arms[0])
    call = Call(0, STEPS[0], STEPS[0].verb, None, Arguments({}, ()))
    consent(call, {"least": 5})
    with pytest.raises(Refused, match="least is not its"):
        consent(call, {"least": asked})


def test_a_table_without_rounding_is_not_told(hospital):
    run, terms = study(hospital)
    view = Reading(variables_of(terms.dictionary, terms.outcome)).view
    beyond(
        hospital, run, "describe", "describe_columns", "gather", "rounding of describe", view=view,
        arguments={"n_levels": np.array([3, 2]), "min_cell": 5, "rounding": False},
    )  # fmt: skip


@pytest.mark.parametrize("step", ["describe_quantiles", "describe_by_group", "sum_pairs"])
def test_the_session_of_table_1_answers_no_other_description(hospital, step):
    run, _ = study(hospital)
    told = hospital.call(run, session="describe", step=step, verb="gather")
    assert told["code"] == "VerbRefused"


# views ------------------------------------------------------------------------------------------


def single(made: Design, name: str, **change: Any) -> Design:
    """Return a design in which one column is another."""
    columns = tuple(dataclasses.replace(c, **change) if c.name == name else c for c in made.columns)
    return dataclasses.replace(made, columns=columns)


CRAFTED = {
    "limits round one patient": (lambda d: single(d, "marker", low=3.9, high=4.0), "is cut"),
    "one limit": (lambda d: single(d, "age", low=89.5), "is cut"),
    "knots": (lambda d: single(d, "age", knots=(1.0, 2.0), shares=(0.0, 1.0)), "has knots"),
    "what is missing": (lambda d: single(d, "age", indicator=True), "indicates missing values"),
    "other levels": (
        lambda d: single(d, "grade", levels=("I", "II"), kept=("I", "II"), fill="I"),
        "other levels",
    ),
    "a level twice": (lambda d: single(d, "grade", kept=("I", "II", "II")), "levels of column"),
    "another outcome": (
        lambda d: dataclasses.replace(d, outcome=Continuous("age"), classes=()), "another outcome"
    ),
    "time as event": (
        lambda d: dataclasses.replace(d, outcome=Survival("age", "cens")), "another outcome"
    ),
    "no outcome": (lambda d: dataclasses.replace(d, outcome=None), "another outcome"),
    "weights": (lambda d: dataclasses.replace(d, weights="marker"), "weights differs"),
    "an offset": (lambda d: dataclasses.replace(d, offset="marker"), "offset differs"),
    "strata": (
        lambda d: dataclasses.replace(d, strata="grade", strata_levels=("I", "II", "III")),
        "strata differs",
    ),
    "winsorised": (lambda d: dataclasses.replace(d, winsorise=0.2), "winsorise differs"),
    "pooled": (lambda d: dataclasses.replace(d, pool_levels=3), "pool_levels differs"),
    "the time as a feature": (
        lambda d: dataclasses.replace(
            d, columns=(NumberColumn(name="time", type="time", fill=0.0), *d.columns)
        ),
        "outcome 'time' is read",
    ),
    "a column twice": (
        lambda d: dataclasses.replace(d, columns=(d.columns[0], *d.columns)), "twice"
    ),
    "a note": (
        lambda d: dataclasses.replace(
            d, columns=(NumberColumn(name="note", type="number", fill=0.0), *d.columns)
        ),
        "column that the study",
    ),
}  # fmt: skip


def test_a_preprocessing_without_a_scale_is_none_and_nothing_leaves(hospital):
    run, terms = study(hospital)
    crafted = single(design(hospital, run, terms), "age", scale=0.0)
    before = step_lines(hospital)
    told = hospital.call(
        run, session=FIT, step="death_moments", verb="sum", parcel=Parcel.of({}),
        view=seen(crafted),
    )  # fmt: skip
    assert (told["kind"], told["reason"]) == ("error", "view")
    assert step_lines(hospital) == before


@pytest.mark.parametrize("case", CRAFTED)
def test_a_preprocessing_that_the_study_does_not_ask_for_is_refused(hospital, case):
    """In a fit, and where a model is judged."""
    change, why = CRAFTED[case]
    run, terms = study(hospital)
    crafted = change(design(hospital, run, terms))
    beyond(hospital, run, FIT, "death_moments", "sum", why, view=crafted)
    honest = design(hospital, run, terms)
    fed = remote(hospital, run, FIT).through(honest)
    task = Task(kind="survival", features=honest.features, outcome="survival", origin=honest.origin)
    model = COX.fit(fed, COX.configure({}), task)
    meta = {"method": "cox", "meta": model.meta(), "design": crafted.to_json()}
    said = Said(base64.b64encode(encode(model.arrays(), meta)).decode())
    beyond(
        hospital, run, "judge-r0000-a00", "tell_own", "gather", why, view=said,
        arguments={"min_cell": 5},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        (Variable("pid", "category", ("P00001", "P00002")), "column that the study"),
        (Variable("note", "category", ("note 7",)), "column that the study"),
        (Variable("grade", "category", ("I", "II")), "other levels"),
        (Variable("age", "category", ("44", "45")), "another type"),
        (Variable("marker", "category", ("2.017",)), "another type"),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_no_column_is_read_as_levels_of_the_coordinators_choice(hospital, variable, why):
    """Counts of levels would tell which values there are, down to one patient's."""
    run, _ = study(hospital)
    arguments = {"most_levels": len(variable.levels)}
    beyond(
        hospital, run, FIT, "column_tally", "sum", why, view=Encoding((variable,)),
        arguments=arguments,
    )  # fmt: skip


def test_a_session_has_its_own_views_alone(hospital):
    run, terms = study(hospital)
    view = design(hospital, run, terms)
    beyond(hospital, run, "judge-r0000-a00", "tell_own", "gather", "no such view", view=view,
           arguments={"min_cell": 5})  # fmt: skip
    beyond(hospital, run, "judge-r0000-a00", "tell_own", "gather", "no such view", view=Own(),
           arguments={"min_cell": 5})  # fmt: skip
    beyond(hospital, run, "count", "tell_counts", "gather", "no such view", view=view,
           arguments={"min_cell": 5})  # fmt: skip


def test_curves_are_not_asked_for_at_times_without_end():
    """A list of times in a request costs the node a number for each of its rows and times."""
    many = json.dumps({"times": list(range(100_000))}, separators=(",", ":"))
    with pytest.raises((ValueError, DataError)):
        Own.from_spec(many)
    text = json.dumps({"model": "", "times": list(range(100_000)), "of": "risk"})
    with pytest.raises((ValueError, DataError)):
        Said.from_spec(text)


# sessions, and how many calls ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "session",
    ["fit-r0001-a00", "fit-r0000-a01", "alone-r0000-a00", "tune-r0000-a00-n00000", "fit-r0000-a0",
     "score-r0000-a00-n00000", "fit", "", "FIT-r0000-a00", "fit-r0000-a00-n00001", "../fit"],
)  # fmt: skip
def test_sessions_that_the_study_does_not_have_are_refused(hospital, session):
    run, _ = study(hospital)
    told = hospital.call(run, session=session)
    assert told["code"] == "VerbRefused"
    assert step_lines(hospital) == 0


def test_tuning_has_as_many_sessions_as_candidates_and_folds(hospital):
    hospital.policy |= {"methods": "all"}
    hospital.restart()
    run, _ = study(hospital, STUDY + "tune: {by: row-kfold, grid: {l2: [0.1, 1.0]}}\n")
    codes = {
        name: hospital.call(run, session=name, step="nothing")["text"]
        for name in ("tune-r0000-a00-n00009", "tune-r0000-a00-n00010",
                     "score-r0000-a00-n00001", "score-r0000-a00-n00002")
    }  # fmt: skip
    known = [name for name, text in codes.items() if "does not know the step" in text]
    assert known == ["tune-r0000-a00-n00009", "score-r0000-a00-n00001"], codes


def test_the_same_question_asked_otherwise_again_and_again_comes_to_an_end(hospital):
    """Also in new attempts, after a new offer, and after the node was started again."""
    hospital.policy |= {"max_calls": 12}
    hospital.restart()
    signed = hospital.signed()
    run = hospital.approved(signed)
    answered = 0
    for i in range(30):
        if i % 10 == 7:
            hospital.restart()
        if i % 10 == 8:
            hospital.ask(encode({}, {"kind": "close", "run": run}))
            hospital.approved(signed)
        told = hospital.call(run, history=f"h{i}", round=i)
        answered += told["kind"] == "reply"
        last = told
    assert answered == step_lines(hospital) == 12
    assert (last["code"], last["reason"]) == ("Refused", "calls")
    assert "max_calls" in last["text"]
    assert hospital.call(run, session="describe", step="nothing")["code"] == "VerbRefused"


def test_a_call_is_checked_before_the_rows_are_looked_at(hospital):
    terms = hospital.terms()

    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("looked at")

    host = Host("north", Untouchable(), STEPS, 0, Consent(terms, "count"))
    call = Call(0, STEPS[0], STEPS[0].verb, None, Arguments({}, ()))
    with pytest.raises(Refused, match="min_cell"):
        host.answer(call, {"min_cell": 1})


# a lead ------------------------------------------------------------------------------------------


@pytest.fixture
def hall(tmp_path):
    with Hall(tmp_path, dict.fromkeys(SITES, "steward")) as made:
        made.start()
        yield made


def submitted(office: Office, made: Any) -> str:
    """Hand a study in; return the code of a refusal, or its state."""
    try:
        _, meta = office.ask("submit", offer=made.to_bytes().decode())
    except Refused as error:
        assert "\n" not in str(error)
        return error.code
    return meta["state"]


def test_a_lead_cannot_fill_the_coordinator_and_keeps_nobody_else_out(hall):
    office = hall.office()
    told = [submitted(office, hall.offer(seed=i)) for i in range(23)]
    assert told == ["waiting"] * 20 + ["many"] * 3
    assert submitted(hall.office("second"), hall.offer("second", seed=99)) == "waiting"
    assert len(list(hall.home.glob("runs/*"))) == 21  # fmt: skip


def test_a_desk_keeps_so_many_studies_and_then_takes_no_more(hospital, monkeypatch):
    """Also where the policy approves each of them at once."""
    monkeypatch.setattr("fedcohort.network.state.study_store.MOST_KEPT", 3)
    told = [
        hospital.offered(hospital.signed(hospital.terms(STUDY + f"seed: {i}\n"))) for i in range(5)
    ]
    assert [t["state"] for t in told] == ["approved"] * 3 + ["refused"] * 2
    assert told[-1]["code"] == "desk"
    assert hospital.call(hospital.signed(hospital.terms(STUDY + "seed: 0\n")).hash)["kind"] == (
        "reply"
    )


def test_a_study_of_a_hundred_megabytes_is_refused_on_both_sides_before_it_is_read(hall):
    """By hand, as the lead's own command does not send it."""
    text = json.dumps({"meta": {"kind": "submit", "offer": "x" * 100_000_000}, "arrays": []})
    body = struct.pack("<Q", len(text)) + text.encode()
    body += struct.pack("<I", zlib.crc32(body))
    office = hall.office()
    (reply,) = dict(office._caller.exchange({"coordinator": body}, 30)).values()
    assert decode(reply)[1]["code"] == "malformed"
    assert "header beyond the limit" in decode(reply)[1]["text"]
    node = hall.nodes["north"]
    peer = node._trust.verify(hall.kit("coordinator").certificate.read_bytes())
    body = encode({"offer": np.frombuffer(bytes(100_000_000), np.uint64)}, {"kind": "offer"})
    assert decode(node.handle(peer, body))[1]["reason"] == "oversized"


def test_a_lead_whose_certificate_was_taken_back_or_has_ended_hands_nothing_in(hall):
    """A study that it signed before is not taken from it, nor from a coordinator that kept it."""
    good = hall.offer()
    late = Trust(hall.kit("north").root, clock=lambda: datetime.now(UTC) + timedelta(days=500))
    with pytest.raises(Refused) as raised:
        good.verify(late)
    assert raised.value.code == "expired"
    hall.network.revoke("lead")
    node = Node(hall.kit("north"), Config.read(hall.folder / "north" / "node.toml"),
                state=hall.folder / "state-2")  # fmt: skip
    peer = hall.nodes["north"]._trust.verify(hall.kit("coordinator").certificate.read_bytes())
    body = encode({}, {"kind": "offer", "offer": good.to_bytes().decode()})
    told = decode(node.handle(peer, body))[1]
    node.close()
    assert told["reason"] == "revoked", told


@pytest.mark.parametrize(
    "text",
    ["a: &a [x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nstudy: *c\n",
     "study: " + "[" * 20_000, "study: !!python/object/apply:os.system [id]\n",
     "study: ../../etc/passwd\n", "study: a/b\n", 'study: "a\\0b"\n', "study: " + "x" * 10_000],
    ids=["bomb", "deep", "code", "dots", "slash", "nul", "long"],
)  # fmt: skip
def test_a_hostile_study_file_ends_in_one_line(tmp_path, text):
    (tmp_path / "s.yaml").write_text(text + STUDY.removeprefix("\nstudy: small"))
    began = time.monotonic()
    with pytest.raises(InputError) as raised:
        Terms.of(tmp_path / "s.yaml")
    assert time.monotonic() - began < 5
    assert len(str(raised.value)) < 1000


# a site ------------------------------------------------------------------------------------------


def nan(arrays: dict, meta: dict, before: list) -> tuple[dict, dict]:
    return {k: np.full(a.shape, np.nan) for k, a in arrays.items()}, meta


def longer(arrays: dict, meta: dict, before: list) -> tuple[dict, dict]:
    return {k: np.zeros((*a.shape, 3), a.dtype) for k, a in arrays.items()}, meta


def other_fields(arrays: dict, meta: dict, before: list) -> tuple[dict, dict]:
    return {**arrays, "more": np.zeros(2)}, meta


def other_call(arrays: dict, meta: dict, before: list) -> tuple[dict, dict]:
    return arrays, {**meta, "call": meta["call"] + 1}


def earlier_reply(arrays: dict, meta: dict, before: list) -> tuple[dict, dict]:
    return before[0]


def text(arrays: dict, meta: dict, before: list) -> tuple[dict, dict]:
    return {}, {"kind": "error", "code": "SiteUnavailable", "text": "\x1b[31m\n" * 400}


@pytest.mark.parametrize(
    "twist",
    [nan, other_call, earlier_reply, longer, other_fields, text],
)
def test_a_site_that_lies_is_named_and_the_next_study_runs(tmp_path, twist):
    """Every reply of south after its third is another than its node gave."""
    with Hall(tmp_path) as hall:
        hall.start()
        honest, kit = hall.up["south"], hall.kit("south")
        node, before = hall.nodes["south"], []

        def lies(peer: Any, body: bytes) -> bytes:
            reply = node.handle(peer, body)
            arrays, meta = decode(reply)
            if meta.get("kind") != "reply":
                return reply
            before.append((arrays, meta))
            return reply if len(before) < 4 else encode(*twist(arrays, meta, before))

        hall.up["south"] = Callee(kit, kit.trust(), ("coordinator",), lies).handle
        office = hall.office()
        _, meta = office.ask("submit", offer=hall.offer().to_bytes().decode(), timeout=5.0)
        run, limit = meta["run"], time.monotonic() + 60
        while meta["state"] in ("waiting", "queued", "running") and time.monotonic() < limit:
            time.sleep(0.05)
            _, meta = office.ask("status", run=run)
        told = meta["reason"]
        if meta["state"] == "done":
            told = (hall.home / "runs" / run / "out" / "results.json").read_text()
            found = [a["status"] for a in json.loads(told)["arms"]]
            assert all(status.startswith("failed") for status in found), found
        assert meta["state"] in ("done", "failed")
        assert "south" in told, (meta, told[:300])
        assert all(c.isprintable() for c in meta["reason"])
        hall.up["south"] = honest
        again = hall.office()
        _, first = again.ask("submit", offer=hall.offer(seed=77).to_bytes().decode())
        hall.until(again, Status.of(first), "done")
