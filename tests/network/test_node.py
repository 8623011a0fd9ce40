"""What a node does with what it is asked: a refusal is one line on both sides, nothing computed."""

import dataclasses
import json
import struct
import threading

import numpy as np
import pytest

import fedcohort
from fedcohort.algorithms.cox import METHOD as COX
from fedcohort.data import prepare
from fedcohort.network import requests
from fedcohort.network.kits.make import Kit
from fedcohort.network.requests import Standing
from fedcohort.network.state import decisions, signatures, study_store
from fedcohort.network.state.budget import Budget
from fedcohort.network.state.study_store import MOST_UNFIT
from fedcohort.network.study_offer import Offer
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.wire import decode, encode
from fedcohort.runtime.calls import refusal_bytes
from fedcohort.runtime.remote import remote
from fedcohort.study.at_site.counting import tell_counts
from fedcohort.study.file.terms import Terms
from hospital import DICTIONARY, STUDY, Hospital, patients, request


@pytest.fixture
def hospital(tmp_path):
    made = Hospital(tmp_path)
    yield made
    made.node.close()


def setting(made: Hospital, **policy) -> Hospital:
    made.policy |= policy
    made.restart()
    return made


def decide(made: Hospital, run: str, decision: str, reason: str = "", **good) -> None:
    """Let the site's steward decide, as the command does."""
    kit = Kit.read(made.steward)
    store = signatures.open_store(made.kit, made.node.config.policy, made.state)
    store.decide(run, decision, kit.name, reason, signatures.signer(kit, "north"), **good)


def refused(made: Hospital, told: dict, code: str, *said: str) -> str:
    """Check a refusal: one line to the coordinator, in log and ledger, and nothing computed."""
    if told["kind"] == "standing":
        assert told["state"] == "refused"
        assert told["code"] == code
        text = told["reason"]
    else:
        assert told["kind"] == "error"
        assert told["code"] == "Refused"
        assert told["reason"] == code
        text = told["text"]
    for part in said:
        assert part in text
    assert "\n" not in text
    assert text.startswith("site 'north'")
    line = made.log.splitlines()[-1]
    assert f"refused {code}" in line
    assert " ".join(text.removeprefix("site 'north': ").split())[:200] in line
    ledger = [json.loads(x) for x in (made.state / "ledger.jsonl").read_text().splitlines()]
    assert ledger[-1]["told"] == "refused"
    assert not [x for x in ledger if "step" in x], "something was computed"
    return text


# what is answered -----------------------------------------------------------------------


def test_an_approved_study_is_answered_and_its_reply_stands_in_the_ledger(hospital):
    run = hospital.approved()
    told = hospital.call(run)
    assert told["kind"] == "reply"
    (line,) = [json.loads(x) for x in (hospital.state / "ledger.jsonl").read_text().splitlines()]
    assert (line["run"], line["session"], line["step"]) == (run, "count", "tell_counts")
    assert line["fields"]["rows"] == {"shape": [2], "dtype": "int64", "bytes": 16}
    assert line["verb"] == "gather"


def test_a_ping_says_the_version(hospital):
    told = hospital.ask(encode({}, {"kind": "ping"}))
    assert told == {"kind": "pong", "version": fedcohort.__version__}


def test_a_node_takes_part_in_a_fit_that_equals_the_fit_on_its_table(hospital):
    """Through bytes, node, store and strict decoding: the arrays of a fit in this process."""
    from fedcohort.runtime.local import local
    from fedcohort.study.at_site.sessions import open_session
    from fedcohort.study.at_site.table import SiteTable

    made = hospital.signed()
    run, terms = hospital.approved(made), Terms.from_json(made.terms)
    host = open_session(terms, SiteTable.of(terms, "north", patients()), "fit-r0000-a00", 5)
    found = []
    for fed in (remote(hospital, run, "fit-r0000-a00"), local([host])):
        design = prepare.fit_design(
            fed, terms.dictionary, terms.outcome, scale="none", impute="median", min_cell=5
        )
        from fedcohort.protocol import Task

        task = Task(
            kind="survival", features=design.features, outcome="survival", origin=design.origin
        )
        found.append(COX.fit(fed.through(design), COX.configure({}), task).arrays())
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


# who decides ------------------------------------------------------------------------------


def test_a_study_waits_for_the_steward_and_no_call_is_answered_before(hospital):
    setting(hospital, approval="steward")
    made = hospital.signed()
    told = hospital.offered(made)
    assert told["state"] == "waiting"
    assert told["reason"] == "waiting for the data steward"
    refused(hospital, hospital.call(made.hash), "unapproved", made.hash[:12], "is not approved")
    decide(hospital, made.hash, study_store.APPROVED)
    assert hospital.offered(made)["state"] == "approved"
    assert hospital.call(made.hash)["kind"] == "reply"


def test_the_reason_of_a_refusal_reaches_the_lead(hospital):
    setting(hospital, approval="steward")
    made = hospital.signed()
    hospital.offered(made)
    decide(hospital, made.hash, study_store.REFUSED, "We have no ethics vote for the marker.")
    text = refused(hospital, hospital.offered(made), "refused")
    assert text.endswith("refused the study: We have no ethics vote for the marker.")
    refused(hospital, hospital.call(made.hash), "refused", "no ethics vote")


def test_an_approval_that_is_taken_back_ends_a_run_at_its_next_call(hospital):
    setting(hospital, approval="steward")
    made = hospital.signed()
    hospital.offered(made)
    decide(hospital, made.hash, study_store.APPROVED)
    hospital.offered(made)
    assert hospital.call(made.hash)["kind"] == "reply"
    decide(hospital, made.hash, study_store.REFUSED, "Stop.")
    told = hospital.call(made.hash, call=1)
    assert told["kind"] == "error"
    assert told["reason"] == "refused"


def test_an_approval_without_the_stewards_signature_counts_for_nothing(hospital):
    setting(hospital, approval="steward")
    made = hospital.signed()
    hospital.offered(made)
    forged = dataclasses.asdict(
        study_store.Decision(1, "approved", "", "steward-north", study_store.now())
    )
    other = Kit.read(hospital.folder / "net" / "people" / "steward-south")
    text = study_store.Decision(**forged).signed("net", "north", made.hash)
    signed = forged | {
        "signature": other.private_key().sign(text).hex(),
        "certificate": other.certificate.read_text(),
    }
    honest = study_store.Decision(2, "approved", "", "steward-south", study_store.now())
    text = honest.signed("net", "north", made.hash)
    own = dataclasses.asdict(honest) | {
        "signature": other.private_key().sign(text).hex(),
        "certificate": other.certificate.read_text(),
    }
    path = hospital.state / "desk" / made.hash / "decisions.jsonl"
    path.write_text("\n".join([*map(json.dumps, (forged, signed, own)), "nonsense\n"]))
    assert hospital.offered(made)["state"] == "waiting"
    refused(hospital, hospital.call(made.hash), "unapproved")


def test_an_old_approval_does_not_come_back_after_a_refusal(hospital):
    setting(hospital, approval="steward")
    made = hospital.signed()
    hospital.offered(made)
    decide(hospital, made.hash, study_store.APPROVED)
    path = hospital.state / "desk" / made.hash / "decisions.jsonl"
    approval = path.read_text()
    decide(hospital, made.hash, study_store.REFUSED, "No.")
    path.write_text(path.read_text() + approval)
    refused(hospital, hospital.offered(made), "refused", "No.")


def test_an_approval_of_one_study_is_none_of_another(hospital):
    setting(hospital, approval="steward")
    one, other = hospital.signed(), hospital.signed(hospital.terms(STUDY + "seed: 1\n"))
    for made in (one, other):
        hospital.offered(made)
    decide(hospital, one.hash, study_store.APPROVED)
    store = hospital.state / "desk"
    text = (store / one.hash / "decisions.jsonl").read_text()
    (store / other.hash / "decisions.jsonl").write_text(text)
    assert hospital.offered(other)["state"] == "waiting"


def close(made: Hospital, run: str, **meta) -> None:
    assert made.ask(encode({}, {"kind": "close", "run": run, **meta}))["kind"] == "closed"


def on(monkeypatch, day: str) -> None:
    """Let it be another day for those who look at decisions."""
    monkeypatch.setattr(decisions, "now", lambda: f"{day}T12:00:00Z")


def test_the_same_study_does_not_run_again_without_asking(hospital):
    """One run, however often it is interrupted; the next one of the same hash waits again."""
    setting(hospital, approval="steward")
    made = hospital.signed()
    hospital.offered(made)
    decide(hospital, made.hash, study_store.APPROVED)
    for _ in range(2):  # offered twice, and not called: no run
        assert hospital.offered(made)["state"] == "approved"
        close(hospital, made.hash, over=True, end="refused", reason="site 'south': no")
    hospital.offered(made)
    assert hospital.call(made.hash)["kind"] == "reply"
    hospital.restart()
    assert hospital.offered(made)["state"] == "approved", "the same run goes on"
    assert hospital.call(made.hash, call=1)["kind"] == "reply"
    close(hospital, made.hash, over=True, end="done")
    told = hospital.offered(made)
    assert told["state"] == "waiting"
    assert told["reason"].startswith("waiting for the data steward: the approval of ")
    assert told["reason"].endswith(" was for 1 run, which was made")
    text = hospital.call(made.hash)["text"]
    assert "was for 1 run, which was made. The study" in text and "--resume goes on" in text
    hospital.restart()
    assert hospital.offered(made)["state"] == "waiting"
    decide(hospital, made.hash, study_store.APPROVED, runs=2)
    for _ in range(2):
        assert hospital.offered(made)["state"] == "approved"
        assert hospital.call(made.hash)["kind"] == "reply"
        close(hospital, made.hash, over=True, end="cancelled", reason="by lead")
    assert "was for 2 runs, which were made" in hospital.offered(made)["reason"]


def test_an_approval_ends_with_its_last_day_also_in_the_middle_of_a_run(hospital, monkeypatch):
    setting(hospital, approval="steward")
    made = hospital.signed()
    hospital.offered(made)
    decide(hospital, made.hash, study_store.APPROVED, until="2030-03-31", runs=5)
    on(monkeypatch, "2030-03-31")
    assert hospital.offered(made)["state"] == "approved"
    assert hospital.call(made.hash)["kind"] == "reply"
    on(monkeypatch, "2030-04-01")
    told = hospital.call(made.hash, call=1)
    assert told["reason"] == "unapproved"
    assert " ended on 2030-03-31. The study " in told["text"]
    assert "\n" not in told["text"]
    assert "ended on 2030-03-31" in hospital.offered(made)["reason"]
    assert hospital.node.facts()["waiting"] == [f"small ({made.hash[:12]})"]
    decide(hospital, made.hash, study_store.APPROVED, until="2030-05-01")
    assert hospital.call(made.hash, call=1)["kind"] == "reply", "the run goes on"


def test_a_policys_approval_ends_too_and_the_policy_decides_anew(hospital, monkeypatch):
    setting(hospital, approval_days=30, approval_runs=1)
    run = hospital.approved()
    made = hospital.node.store.decision(run)
    assert (made.by, made.until, made.runs) == ("policy", decisions.until(30), 1)
    assert hospital.call(run)["kind"] == "reply"
    close(hospital, run, over=True, end="done")
    assert hospital.approved() == run
    assert hospital.node.store.decision(run).number == 2
    assert hospital.call(run)["kind"] == "reply"
    on(monkeypatch, "2090-01-01")
    assert hospital.call(run, call=1)["kind"] == "reply"
    assert hospital.node.store.decision(run).number == 3
    decide_by_hand = hospital.node.store.decide
    decide_by_hand(run, study_store.APPROVED, "anna", until="2090-01-01")
    on(monkeypatch, "2090-01-02")
    assert "ended on 2090-01-01" in hospital.offered(hospital.signed())["reason"], "of a person"


def test_an_approval_in_the_form_before_this_one_has_to_be_made_anew(hospital):
    setting(hospital, approval="steward")
    made = hospital.signed()
    hospital.offered(made)
    kit = Kit.read(hospital.steward)
    path = hospital.state / "desk" / made.hash / "decisions.jsonl"

    def former(decision, number, **more):
        old = study_store.Decision(number, decision, "", kit.name, "2026-01-01T00:00:00Z")
        signature, certificate = signatures.signer(kit, "north")(
            old.signed("net", "north", made.hash)
        )
        told = {k: v for k, v in dataclasses.asdict(old).items() if k not in NEW}
        told |= {"signature": signature.hex(), "certificate": certificate.decode(), **more}
        path.write_text(json.dumps(told) + "\n")

    former("approved", 1)
    told = hospital.offered(made)
    assert told["state"] == "waiting"
    assert "is of an earlier version's form, which says neither until when" in told["reason"]
    former("approved", 1, until="2099-01-01", runs=9)  # what was not signed gives nothing
    assert hospital.offered(made)["reason"] == "waiting for the data steward"
    former("approved", 1, until="2099-01-01", runs=9, form=2)
    assert hospital.offered(made)["reason"] == "waiting for the data steward"
    former("refused", 2)
    assert hospital.offered(made)["state"] == "refused"


#: What decisions of form 1 did not say.
NEW = ("until", "runs", "form")


def test_no_message_of_a_coordinator_makes_a_node_forget_what_protects_patients(hospital):
    setting(hospital, approval="steward", privacy_budget={"epsilon": 3.0, "delta": 1e-5})
    made = hospital.signed()
    hospital.offered(made)
    decide(hospital, made.hash, study_store.APPROVED)
    hospital.offered(made)
    hospital.call(made.hash)
    budget = Budget(
        hospital.state / "budget.sqlite", "patients", hospital.node.config.policy.budget
    )
    budget.reserve(made.hash, "fit", 0.5, 1e-6)
    kept = ("decided.sqlite", "cohorts.sqlite", "budget.sqlite")
    before = {name: (hospital.state / name).read_bytes() for name in kept}
    ledger = (hospital.state / "ledger.jsonl").read_bytes()
    decided = (hospital.state / "desk" / made.hash / "decisions.jsonl").read_bytes()
    pinned = sorted(p.name for p in (hospital.state / "pinned").rglob("*"))
    for kind in ("end", "close"):
        for end in ("done", "failed", "cancelled", "refused", "waiting", "", 7, None, ["done"]):
            for reason in ("x" * 10_000, None, 5, "\x1b[2J"):
                hospital.ask(
                    encode({}, {"kind": kind, "run": made.hash, "end": end, "reason": reason})
                )
    for name in kept:
        assert (hospital.state / name).read_bytes() == before[name], name
    assert (hospital.state / "ledger.jsonl").read_bytes().startswith(ledger)
    assert (hospital.state / "desk" / made.hash / "decisions.jsonl").read_bytes() == decided
    assert sorted(p.name for p in (hospital.state / "pinned").rglob("*")) == pinned
    assert len(hospital.node.store.entry(made.hash).ended.reason) <= study_store.LONGEST_REASON
    assert "was for 1 run" in hospital.offered(made)["reason"], "and the run stays counted"
    other = "ab" * 32
    close(hospital, other, over=True, end="done")
    assert not (hospital.state / "desk" / other).exists()


# what policies refuse -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "code", "said"),
    [
        ({"methods": ["deepcox"]}, "method", "asks for method 'cox'; this site allows 'deepcox'"),
        (
            {"columns": ["age", "grade", "marker", "note", "pid", "time", "cens"]}, "column",
            "asks for column 'seen'; this site allows 'age', 'grade', 'marker', 'note', 'pid'",
        ),
        ({"min_cell": 10}, "min_cell", "asks for privacy.min_cell 5; this site allows 10 or more"),
        ({"submitters": ["anna"]}, "submitter", "submitted by 'lead'; this site takes studies of"),
        ({"min_rows": 161}, "rows", "too few rows; this site allows 161 or more"),
    ],
)  # fmt: skip
def test_a_study_beyond_the_policy_is_refused_at_the_offer_and_at_every_call(
    hospital, policy, code, said
):
    made = hospital.signed()
    hospital.approved(made)
    setting(hospital, **policy)
    text = refused(hospital, hospital.offered(made), code, said)
    assert "160" not in text, "the count of rows stays at the site"
    told = hospital.call(made.hash)
    assert told["kind"] == "error"
    assert told["reason"] == code


def test_a_site_that_requires_masked_sums_refuses_a_study_that_switches_them_off(hospital):
    terms = hospital.terms()
    content = dict(terms.content) | {"privacy": {"min_cell": 5, "secure_aggregation": False}}
    made = hospital.signed(dataclasses.replace(terms, content=content))
    assert hospital.offered(made)["state"] in ("waiting", "approved")
    setting(hospital, secure_sum="required")
    refused(hospital, hospital.offered(made), "secure_sum", "this site requires them")


# what is not what it says -------------------------------------------------------------------


def test_a_study_that_was_edited_after_it_was_signed_is_refused(hospital):
    says = json.loads(hospital.signed().to_bytes())
    edits = {
        "terms": says["terms"].replace('"min_cell":5', '"min_cell":1'),
        "lead": "anna",
        "version": "0.1.99",
        "signature": "ab" * 70,
    }
    for key, value in edits.items():
        blob = json.dumps(says | {key: value}, sort_keys=True, separators=(",", ":")).encode()
        told = hospital.offered(blob)
        assert told["kind"] == "error", key
        assert told["reason"] in ("edited", "name"), key
        refused(hospital, told, told["reason"])
    assert not (hospital.state / "desk").exists()


def test_a_study_edited_on_the_desk_is_not_run(hospital):
    run = hospital.approved()
    hospital.restart()
    path = hospital.state / "desk" / run / "offer"
    path.write_bytes(path.read_bytes().replace(b"min_cell", b"min_cels"))
    refused(hospital, hospital.call(run), "edited")
    other = hospital.signed(hospital.terms(STUDY + "seed: 1\n"))
    path.write_bytes(other.to_bytes())
    refused(hospital, hospital.call(run), "hash")


def test_an_incompatible_version_is_refused_by_name(hospital):
    told = hospital.offered(hospital.signed(version="9.7.0"))
    refused(hospital, told, "version", "9.7.0", fedcohort.__version__)


def test_a_study_of_another_network_is_refused(hospital, tmp_path):
    from fedcohort.network.kits.make import Network

    Network.new(tmp_path / "elsewhere", sites=["x"])
    foreign = Kit.read(tmp_path / "elsewhere" / "people" / "lead")
    from fedcohort.network.study_offer import offer

    told = hospital.offered(offer(hospital.terms().to_json(), foreign))
    refused(hospital, told, "network", "elsewhere")


def test_another_lead_does_not_inherit_an_approval(hospital):
    setting(hospital, submitters=["lead", "anna"])
    hospital.approved()
    refused(hospital, hospital.offered(hospital.signed(lead="anna")), "lead", "by 'lead' before")


def test_only_the_coordinator_may_ask(hospital):
    run = hospital.approved()
    lead = Kit.read(hospital.folder / "net" / "people" / "lead")
    peer = hospital.trust.verify(lead.certificate.read_bytes())
    refused(hospital, hospital.ask(request(run), peer), "role", "lead is no coordinator")


# malformed ----------------------------------------------------------------------------------


def broken() -> dict[str, bytes]:
    """Return bodies that no coordinator sends."""
    good = request("0" * 64)
    head = json.dumps({"meta": [], "arrays": []}).encode()
    return {
        "empty": b"",
        "text": b"hello, this is no record of arrays",
        "no header": good[:8],
        "header too long": struct.pack("<Q", 2**60) + good[8:],
        "meta no mapping": struct.pack("<Q", len(head)) + head + b"\0\0\0\0",
        "deep": struct.pack("<Q", 10**5) + b"[" * 10**5,
        "pickle": b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x8c\x07builtins\x94.",
    }


@pytest.mark.parametrize("name", sorted(broken()))
def test_bytes_that_are_no_request_are_refused(hospital, name):
    refused(hospital, hospital.ask(broken()[name]), "malformed", "no record of arrays")


def test_a_request_of_unknown_kind_is_refused(hospital):
    refused(hospital, hospital.ask(encode({}, {"kind": "shell"})), "kind", "none of offer, call")


def test_an_oversized_request_is_refused_before_it_is_read(hospital, monkeypatch):
    from fedcohort.network.node import node

    monkeypatch.setattr(node, "LARGEST", 1000)
    body = encode({"0": np.zeros(1000)}, {"kind": "call", "run": "0" * 64})
    refused(hospital, hospital.ask(body), "size", "larger than 1000 bytes")


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"session": "steal"}, "VerbRefused", "no session of that name"),
        ({"session": "fit-r0099-a00"}, "VerbRefused", "no session of that name"),
        ({"step": "rows_of_all"}, "VerbRefused", "rows_of_all"),
        ({"verb": "sum"}, "VerbRefused", "only the gather of tell_counts"),
        ({"parcel": Parcel.of({"min_cell": 1})}, "Refused", "tells of no cell below 5"),
        ({"parcel": Parcel.of({"min_cell": float("nan")})}, "Refused", "tells of no cell below 5"),
        ({"call": 3, "base": 2}, "JournalMismatch", "holds no state of call 2"),
    ],
)  # fmt: skip
def test_a_call_that_the_study_does_not_have_is_refused(hospital, change, code, said):
    run = hospital.approved()
    told = hospital.call(run, **change)
    assert told["kind"] == "error"
    assert told["code"] == code
    assert said in told["text"]
    lines = [json.loads(x) for x in (hospital.state / "ledger.jsonl").read_text().splitlines()]
    assert [x.get("told") for x in lines] == ["error"]
    assert "failed" in hospital.log.splitlines()[-1]


def test_arrays_that_are_malformed_are_refused(hospital):
    run = hospital.approved()
    good = request(run, parcel=Parcel.of({"min_cell": 5, "x": np.ones(3)}))
    cut, flipped = good[:-9], bytearray(good)
    flipped[-8] ^= 1
    for body in (cut, bytes(flipped), good + b"\0"):
        told = hospital.ask(body)
        assert told["kind"] == "error"
        assert told["reason"] == "malformed"
    assert not [
        x for x in (hospital.state / "ledger.jsonl").read_text().splitlines() if "step" in x
    ]


def test_a_reply_with_more_numbers_than_the_site_allows_does_not_leave(hospital):
    setting(hospital, max_parameters=3)
    run = hospital.approved()
    told = hospital.call(run)
    assert told["reason"] == "max_parameters"
    assert "3 at most" in told["text"]


# runs ---------------------------------------------------------------------------------------


def test_a_call_for_another_run_than_the_approved_one_is_refused(hospital):
    hospital.approved()
    refused(hospital, hospital.call("ab" * 32), "unapproved")
    refused(hospital, hospital.call("not a hash"), "run")


def test_a_call_after_the_run_was_closed_is_refused_until_it_is_offered_again(hospital):
    made = hospital.signed()
    run = hospital.approved(made)
    assert hospital.call(run)["kind"] == "reply"
    assert hospital.ask(encode({}, {"kind": "close", "run": run}))["kind"] == "closed"
    told = hospital.call(run, call=1)
    assert told["reason"] == "closed"
    hospital.restart()
    assert hospital.call(run, call=1)["reason"] == "closed"
    hospital.approved(made)
    assert hospital.call(run)["kind"] == "reply"


def test_a_close_that_overtakes_the_offer_of_a_new_run_does_not_end_it(hospital):
    run = hospital.approved()
    hospital.ask(encode({}, {"kind": "close", "run": run}))
    assert hospital.call(run)["kind"] == "reply"


def test_a_restarted_node_answers_the_same_call_with_the_same_bytes(hospital):
    run = hospital.approved()
    hospital.call(run)
    hospital.restart()
    hospital.call(run)
    first, second = hospital.sent[-2:]
    assert first == second


def test_a_table_that_changes_in_the_middle_of_a_run_is_noticed(hospital):
    made = hospital.signed()
    run = hospital.approved(made)
    hospital.call(run)
    patients(seed=1).to_csv(hospital.table, index=False)
    hospital.restart()
    told = hospital.call(run, call=1)
    assert told["reason"] == "changed"
    assert "submit the study anew" in told["text"]
    hospital.approved(made)
    assert hospital.call(run)["kind"] == "reply"


def test_rows_in_another_order_are_the_same_table(hospital):
    run = hospital.approved()
    hospital.call(run)
    patients().sample(frac=1, random_state=3).to_csv(hospital.table, index=False)
    hospital.restart()
    assert hospital.call(run)["kind"] == "reply"
    assert hospital.sent[-1] == hospital.sent[-2]


# data ---------------------------------------------------------------------------------------


def test_a_missing_data_file_is_said_without_its_name(hospital):
    hospital.table.unlink()
    text = refused(hospital, hospital.offered(hospital.signed()), "data", "data file is missing")
    assert "patients" not in text


def test_data_that_do_not_fit_are_named_by_column_and_rule(hospital):
    frame = patients().assign(age=lambda f: f.age.where(f.index != 7, 999))
    frame["grade"] = frame.grade.where(frame.index % 9 != 0, "IV")
    frame.drop(columns="marker").to_csv(hospital.table, index=False)
    made = hospital.signed()
    text = refused(hospital, hospital.offered(made), "unfit")
    assert "column 'age' breaks the rule 'range'" in text
    assert "column 'grade' breaks the rule 'levels'" in text
    assert "column 'marker' breaks the rule" in text
    assert "999" not in text
    assert "IV" not in text
    assert hospital.node.store.entry(made.hash).unfit
    patients().to_csv(hospital.table, index=False)
    assert hospital.offered(made)["state"] == "approved"
    assert not hospital.node.store.entry(made.hash).unfit


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("unit: years", "unit: months", "column 'age' of the study has another 'unit'"),
        ("[I, II, III]", "[III, II, I]", "column 'grade' of the study has another 'levels'"),
        ("type: integer", "type: number", "column 'age' of the study has another 'type'"),
        ("  marker: {type: number, unit: ng/ml}\n", "", "column 'marker' of the study is not in"),
    ],
)
def test_a_study_whose_dictionary_is_not_the_sites_is_refused(hospital, old, new, said):
    assert old in DICTIONARY
    own = hospital.folder / "data" / "own.yaml"
    own.write_text(DICTIONARY)
    hospital.data["dictionary"] = "own.yaml"
    hospital.restart()
    hospital.approved()
    own.write_text(DICTIONARY.replace(old, new))
    hospital.restart()
    refused(hospital, hospital.offered(hospital.signed()), "dictionary", said)


def test_columns_that_the_study_does_not_name_never_reach_a_step(hospital):
    patients().assign(secret=1.0).to_csv(hospital.table, index=False)
    run = hospital.approved()
    hospital.call(run)
    assert "secret" not in hospital.node._studies.held[run].table.frame.columns


def test_nothing_is_opened_before_a_study_is_approved(hospital, monkeypatch):
    from fedcohort.network.node import studies

    def never(*_):
        raise AssertionError("the table was opened")

    setting(hospital, approval="steward")
    monkeypatch.setattr(studies, "open_table", never)
    made = hospital.signed()
    assert hospital.offered(made)["state"] == "waiting"
    hospital.call(made.hash)


def test_whatever_goes_wrong_is_answered_by_kind_and_number(hospital, monkeypatch):
    def fails(*_):
        raise RuntimeError("Jane Doe, 1971")

    monkeypatch.setattr(hospital.node.store, "decision", fails)
    told = hospital.call("ab" * 32)
    assert told["code"] == "SiteFailed"
    assert "RuntimeError" in told["text"]
    assert "fault 1" in told["text"]
    assert "Jane" not in told["text"] + hospital.log
    assert "fault 1 RuntimeError in " in hospital.log


def test_too_many_waiting_studies_are_refused(hospital, monkeypatch):
    monkeypatch.setattr(study_store, "MOST_WAITING", 2)
    setting(hospital, approval="steward")
    for seed in (1, 2):
        hospital.offered(hospital.signed(hospital.terms(STUDY + f"seed: {seed}\n")))
    refused(hospital, hospital.offered(hospital.signed()), "desk", "2 studies wait")


def test_state_is_for_its_owner_alone(hospital):
    run = hospital.approved()
    hospital.call(run)
    for path in [hospital.state, *hospital.state.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path.relative_to(hospital.state)


def test_what_the_reply_holds_is_what_the_site_counted(hospital):
    run = hospital.approved()
    hospital.call(run)
    arrays, _ = decode(hospital.sent[-1])
    assert int(arrays["analysed"]) == 160
    assert tell_counts.reply.__dataclass_fields__.keys() == arrays.keys()


def test_an_offer_is_read_as_it_was_signed(hospital):
    made = hospital.signed()
    run = hospital.approved(made)
    assert Offer.from_bytes((hospital.state / "desk" / run / "offer").read_bytes()) == made


def test_a_run_that_is_closed_while_a_call_looks_whether_it_is_open_stays_closed(tmp_path):
    made = Hospital(tmp_path)
    run = made.approved()
    made.call(run)
    made.restart()
    asked, go_on = threading.Event(), threading.Event()
    read = made.node.store.run

    def slowly(study):
        found = read(study)
        if threading.current_thread() is call:
            asked.set()
            go_on.wait(5)
        return found

    made.node.store.run = slowly
    call = threading.Thread(target=made.call, args=(run,))
    call.start()
    assert asked.wait(5)
    close = threading.Thread(target=made.ask, args=(encode({}, {"kind": "close", "run": run}),))
    close.start()
    close.join(0.2)
    go_on.set()
    for thread in (call, close):
        thread.join(5)
    assert made.call(run)["reason"] == "closed"


def test_a_lead_whose_studies_did_not_fit_time_and_again_is_answered_after_a_steward_alone(
    hospital,
):
    """Halving a range in its own dictionary, a lead would read the largest marker."""
    low, high, told = 0.0, 16.0, []
    for _ in range(MOST_UNFIT + 12):
        middle = (low + high) / 2
        limited = DICTIONARY.replace("unit: ng/ml", f"unit: ng/ml, range: [0, {middle}]")
        assert limited != DICTIONARY
        said = hospital.offered(hospital.signed(hospital.terms(STUDY, limited)))
        told.append(said["state"])
        if said["state"] == "waiting":
            break
        low, high = (middle, high) if said["state"] == "refused" else (low, middle)
    assert told.count("refused") == MOST_UNFIT
    assert told[-1] == "waiting"
    assert hospital.offered(hospital.signed())["state"] == "waiting"
    assert hospital.offered(hospital.signed(lead="anna"))["code"] == "submitter"


def test_a_node_masks_no_weighted_sum_and_holds_to_its_own_fewest_sites(hospital):
    setting(hospital, secure_sum_sites=7)
    rule = hospital.node._sum_rule(hospital.approved())
    assert (rule.plain, rule.least, rule.weights, rule.rehearsed) == ("few", 7, False, False)


def test_a_node_whose_state_cannot_be_written_says_so_lives_and_goes_on_afterwards(hospital):
    made = hospital.signed()
    hospital.offered(made)
    state, away = hospital.node.state, hospital.node.state.with_name("away")
    state.rename(away)
    for body in (requests.offer(made.to_bytes()), requests.ask("call", run=made.hash)):
        told = hospital.ask(body)
        assert (told["code"], told["reason"]) == ("Refused", "disk")
        assert "site 'north': it cannot write its folder 'state' (No such file" in told["text"]
        assert "Its IT has to make room" in told["text"]
        assert str(away.parent) not in told["text"]
    assert "cannot write" in hospital.node.facts()["error"]
    away.rename(state)
    assert hospital.offered(made)["state"] == "approved"


def test_a_full_disk_at_a_site_decides_nothing_about_a_study():
    refused = refusal_bytes("Refused", "site 'north': it cannot write its folder", "disk")
    assert requests.standing(refused) == Standing(
        "away", "site 'north': it cannot write its folder"
    )
    assert requests.standing(refusal_bytes("Refused", "no", "columns")).state == "refused"


def test_the_store_of_answers_maps_no_file_into_memory(hospital):
    # a page of a mapped file that cannot be written ends the process by SIGBUS
    hospital.offered(hospital.signed())
    assert (hospital.node.state / "answers.sqlite").is_file()
    assert not list(hospital.node.state.glob("*-shm"))
