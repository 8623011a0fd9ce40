"""A hospital leaves: its withdrawal, and what a node answers to a study that forgets hospitals."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import numpy as np
import pytest

from fedcohort.apps import steward
from fedcohort.network.kits.make import Kit
from fedcohort.network.state import kept
from fedcohort.network.state.withdrawals import Withdrawal, made
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.protocol.wire import encode
from fedcohort.study.file.forget import FORGET
from fedcohort.study.file.terms import Terms
from hospital import Hospital

STUDY = """
study: leaves
task: classification
keep: true
data:
  source: nowhere.csv
  dictionary: dictionary.yaml
  outcome: {y: cens}
arms:
- {method: bayes_logistic}
- {method: bayes_net, hidden: [2], rounds: 4}
evaluate: {test_fraction: 0.25, repeats: 1, metrics: [auc]}
privacy: {min_cell: 5}
"""
DICTIONARY = """
variables:
  age: {type: integer, unit: years, range: [18, 110]}
  marker: {type: number}
  cens: {type: binary}
"""
WHY = "patients object"


@pytest.fixture
def hospital(tmp_path):
    found = Hospital(tmp_path, policy={"methods": "all"})
    yield found
    found.node.close()


def kit_of(hospital, who):
    folder = "sites" if who in ("north", "south") else "people"
    return Kit.read(hospital.folder / "net" / folder / who)


def first(hospital, change=lambda text: text):
    """Offer the study that is run first; return its terms."""
    terms = hospital.terms(change(STUDY), DICTIONARY)
    hospital.approved(hospital.signed(terms))
    return terms


def withdrawn(hospital, study, who="steward-south", site="south", reason=WHY):
    return made(kit_of(hospital, who), site, hospital.kit.network, study, reason)


def forgets(first, *records, of=None, **changes):
    """Return a study that forgets hospitals in another one."""
    asked = {"of": of or first.hash, "withdrawals": [r.record() for r in records]}
    data = {k: v for k, v in first.content.items() if k == "data"}
    content = {k: v for k, v in first.content.items() if k not in ("data", FORGET)}
    return Terms({**content, **changes, FORGET: asked, **data}, first.dictionary_content)


def withdraw(hospital, run, reason=WHY, name="w.json", by=None):
    out = hospital.folder / name
    lines = list(steward.withdraw(hospital.kit.folder, hospital.config, run[:12], by, reason, out))
    return Withdrawal.of(json.loads(out.read_text())), lines


# withdrawals ------------------------------------------------------------------------------


def test_a_withdrawal_counts_only_if_its_own_hospital_signed_it(hospital):
    one = withdrawn(hospital, "ab" * 32)
    one.verify(hospital.trust)
    withdrawn(hospital, "ab" * 32, who="south").verify(hospital.trust)
    forged = (
        replace(one, site="north"),
        replace(one, study="cd" * 32),
        replace(one, reason="no reason"),
        replace(one, at="2020-01-01T00:00:00Z"),
        replace(one, by="steward-north"),
        replace(one, signature="00"),
        replace(one, signature="zz"),
        replace(one, certificate=withdrawn(hospital, "ab" * 32, "north", "north").certificate),
        replace(one, certificate=kit_of(hospital, "lead").certificate.read_text()),
    )
    for record in forged:
        with pytest.raises(Refused, match="is not signed by that hospital") as error:
            record.verify(hospital.trust)
        assert error.value.code == "withdrawal"


@pytest.mark.parametrize("who", ["lead", "steward-north", "north"])
def test_nobody_else_can_sign_it(hospital, who):
    with pytest.raises(InputError, match="'south' withdraws with the kit of 'steward-south'"):
        withdrawn(hospital, "ab" * 32, who=who)


def test_who_withdraws_is_asked_nothing_more_and_keeps_nothing(hospital):
    terms = first(hospital)
    kept.save(hospital.state, terms.hash, "fit-a01", {"a": np.ones(3)}, frozenset(), "t")
    assert hospital.call(terms.hash)["kind"] == "reply"
    one, lines = withdraw(hospital, terms.hash)
    one.verify(hospital.trust)
    assert (one.site, one.study, one.reason, one.by) == ("north", terms.hash, WHY, "north")
    assert "Deleted of what was kept here: 1 file." in lines
    assert list(kept.parts(hospital.state)) == []
    told = hospital.call(terms.hash)
    assert (told["reason"], told["text"].partition(": ")[2]) == (
        "withdrawn", f"the hospital {one.said}",
    )  # fmt: skip
    assert hospital.offered(hospital.signed(terms))["code"] == "withdrawn"
    later = forgets(terms, withdrawn(hospital, terms.hash))
    assert hospital.offered(hospital.signed(later))["code"] == "withdrawn"


def test_a_withdrawal_is_in_the_history_and_the_ledger_and_is_for_good(hospital):
    terms = first(hospital)
    withdraw(hospital, terms.hash)
    history = "\n".join(steward.history(hospital.kit.folder, hospital.config, None))
    assert "refused by north" in history
    assert f"withdrawn: {WHY}" in history
    lines = (hospital.state / "ledger.jsonl").read_text().splitlines()
    [noted] = [x for x in map(json.loads, lines) if x.get("told") == "withdrawn"]
    assert (noted["run"], WHY in noted["text"]) == (terms.hash, True)
    desk = hospital.kit.folder, hospital.config, terms.hash[:12]
    with pytest.raises(InputError, match="That is for good"):
        steward.approve(*desk, None)
    with pytest.raises(InputError, match=r"withdrew on .* give --out"):
        list(steward.withdraw(*desk, None, WHY, None))


def test_with_a_steward_the_stewards_signature_is_needed(hospital):
    hospital.policy |= {"approval": "steward"}
    hospital.restart()
    terms = hospital.terms(STUDY, DICTIONARY)
    hospital.offered(hospital.signed(terms))
    with pytest.raises(InputError, match="signed by its data steward"):
        withdraw(hospital, terms.hash)
    one, _ = withdraw(hospital, terms.hash, by=hospital.steward)
    assert one.by == "steward-north"
    entry = hospital.node.store.entry(terms.hash)
    assert (entry.state, entry.decision.by) == ("refused", "steward-north")


def test_a_withdrawal_needs_a_reason_and_a_new_file(hospital):
    terms = first(hospital)
    with pytest.raises(InputError, match="say in a few words why"):
        withdraw(hospital, terms.hash, reason=" ")
    (hospital.folder / "w.json").write_text("mine")
    with pytest.raises(InputError, match="this file exists"):
        withdraw(hospital, terms.hash)
    assert hospital.call(terms.hash)["kind"] == "reply"


def test_the_coordinator_alone_is_told_a_withdrawal(hospital):
    terms = first(hospital)
    body = encode({}, {"kind": "withdrawal", "run": terms.hash})
    assert hospital.ask(body)["record"] == {}
    one, _ = withdraw(hospital, terms.hash)
    assert Withdrawal.of(hospital.ask(body)["record"]) == one
    lead = hospital.trust.verify(kit_of(hospital, "lead").certificate.read_bytes())
    assert hospital.ask(body, peer=lead)["kind"] == "error"


# studies that forget ----------------------------------------------------------------------


def test_a_study_that_forgets_waits_or_is_approved_like_any_other(hospital):
    terms = first(hospital)
    found = forgets(terms, withdrawn(hospital, terms.hash))
    assert hospital.offered(hospital.signed(found))["state"] == "approved"
    assert hospital.node.store.entry(found.hash).name == "leaves, without south"
    hospital.policy |= {"approval": "steward"}
    hospital.restart()
    assert hospital.offered(hospital.signed(found))["state"] == "waiting"


def test_a_steward_reads_who_left_and_what_stays(hospital):
    terms = first(hospital)
    found = forgets(terms, withdrawn(hospital, terms.hash))
    hospital.approved(hospital.signed(found))
    desk = hospital.kit.folder, hospital.config
    page = " ".join(" ".join(steward.studies(*desk, terms.hash[:12], check=False)).split())
    assert "Your node keeps this hospital's own part of the model bayes logistic and bayes" in page
    assert "is never sent" in page
    page = " ".join(" ".join(steward.studies(*desk, found.hash[:12], check=False)).split())
    assert f": {WHY}. Signed by steward-south; the signature was verified" in page
    assert f"The models of leaves ({terms.hash[:12]}) are made again without south" in page
    assert "It answers only with all hospitals that stay" in page
    assert "AS YOUR SITE'S OWN" not in page.upper(), "no table is described, no model judged"


@pytest.mark.parametrize(
    ("case", "code", "said"),
    [
        ("unknown", "forget", "which is not known here"),
        ("lead", "forget", "is of another lead"),
        ("masks", "forget", "differs from that of the study"),
        ("rounds", "forget", "differs from that of the study"),
        ("forged", "withdrawal", "is not signed by that hospital"),
        ("unsigned", "withdrawal", "is not signed by that hospital"),
        ("other study", "withdrawal", "withdrew from the study"),
    ],
)
def test_a_node_refuses_a_study_that_would_isolate_a_hospital(hospital, case, code, said):
    """A coordinator that names a hospital which has not withdrawn would learn its factor."""
    terms = first(hospital)
    one = withdrawn(hospital, terms.hash)
    lead, found = "lead", forgets(terms, one)
    match case:
        case "unknown":
            found = forgets(terms, one, of="ef" * 32)
        case "lead":
            lead = "anna"
        case "masks":
            found = forgets(terms, one, privacy={"min_cell": 5, "secure_aggregation": False})
        case "rounds":
            found = forgets(terms, one, seed=5)
        case "forged":
            found = forgets(terms, replace(withdrawn(hospital, terms.hash, "north", "north"),
                                           site="south"))  # fmt: skip
        case "unsigned":
            found = forgets(terms, replace(one, signature="", certificate=""))
        case "other study":
            found = forgets(terms, withdrawn(hospital, "ef" * 32))
    told = hospital.offered(hospital.signed(found, lead))
    assert (told["state"], told["code"]) == ("refused", code)
    assert said in told["reason"]
    assert not hospital.node.store.has(found.hash), "nothing of it lies here"


def test_hospitals_forgotten_before_stay_forgotten(hospital):
    terms = first(hospital)
    one = withdrawn(hospital, terms.hash)
    second = forgets(terms, one)
    hospital.approved(hospital.signed(second))
    own = withdrawn(hospital, second.hash, "north", "north")
    told = hospital.offered(hospital.signed(forgets(second, own)))
    assert (told["code"], "lacks the withdrawals of south" in told["reason"]) == ("forget", True)
    assert hospital.node.store.line(second.hash) == (second.hash, terms.hash)
    withdraw(hospital, second.hash)
    assert hospital.call(terms.hash)["reason"] == "withdrawn", "from the first study, too"


# what is kept -----------------------------------------------------------------------------


def test_kept_parts_are_the_owners_alone_and_of_the_table_that_they_came_from(tmp_path):
    arrays = {"precision": np.arange(3.0), "shift": np.ones(3)}
    kept.save(tmp_path, "ab" * 32, "fit-a01", arrays, frozenset("xyz"), "mark")
    [file] = (tmp_path / "kept").rglob("*.part")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    found = kept.load(tmp_path, "ab" * 32, "fit-a01", "mark", "north")
    assert found.members == {"x", "y", "z"}
    np.testing.assert_array_equal(found.state["precision"], arrays["precision"])
    for name, table, why in (
        ("fit-a01", "other", "its table has changed"),
        ("fit-a02", "mark", "did not ask for it, or it was deleted"),
    ):
        with pytest.raises(Refused, match=why) as error:
            kept.load(tmp_path, "ab" * 32, name, table, "north")
        assert error.value.code == "kept"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(Refused, match="the file is damaged"):
        kept.load(tmp_path, "ab" * 32, "fit-a01", "mark", "north")


def test_the_people_at_a_site_list_and_delete_what_is_kept(hospital):
    terms = first(hospital)
    node = hospital.kit.folder
    assert list(steward.keeps(node, None, delete=False)) == ["Nothing is kept of fits here."]
    kept.save(hospital.state, terms.hash, "fit-a01", {"a": np.ones(3)}, frozenset(), "t")
    [line] = steward.keeps(node, None, delete=False)
    assert line.startswith(f"{terms.hash[:12]}  leaves  fit-a01  ")
    with pytest.raises(InputError, match="name the study"):
        list(steward.keeps(node, None, delete=True))
    assert "deleted: 1 file" in next(iter(steward.keeps(node, terms.hash[:6], delete=True)))
    assert list(kept.parts(hospital.state)) == []


def test_a_site_that_keeps_nothing_says_so_by_a_code(hospital):
    terms = first(hospital)
    found = forgets(terms, withdrawn(hospital, terms.hash))
    run = hospital.approved(hospital.signed(found))
    told = hospital.call(run, session="forget-r0000-a01", step="column_tally", verb="sum", asked=1)
    assert (told["kind"], told["reason"]) == ("error", "kept")
    assert "keeps nothing of this fit" in told["text"]
