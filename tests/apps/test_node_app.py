"""The data steward's commands: what they show, and that a running node heeds what they decide."""

import hashlib
import html
import json
import os
import re
import subprocess
import sys
import time

import pytest

from fedcohort.network.kits.make import Kit
from fedcohort.network.state import decisions
from fedcohort.protocol.errors import FedcohortError, InputError, Refused
from hospital import STUDY, Hospital
from in_process import app


@pytest.fixture
def hospital(tmp_path):
    made = Hospital(
        tmp_path, {"approval": "steward", "privacy_budget": {"epsilon": 3.0, "delta": 1e-5}}
    )
    yield made
    made.node.close()


def run(hospital, capsys, *words, kit=True):
    """Run `fedcohort node …` and return what it prints."""
    own = ["--node", str(hospital.kit.folder)] if kit else []
    app(["node", *words, *own], standalone_mode=False)
    return capsys.readouterr().out


def offered(hospital, seed=0):
    made = hospital.signed(hospital.terms(STUDY + f"seed: {seed}\n"))
    return made, hospital.offered(made)


def test_a_site_that_no_study_came_to_says_so(hospital, capsys):
    assert run(hospital, capsys, "studies") == "No study has come to this site.\n"
    assert run(hospital, capsys, "ledger") == "Nothing has left this site.\n"


def test_studies_are_listed_and_told_and_decided(hospital, capsys):
    made, told = offered(hospital)
    assert told["state"] == "waiting"
    text = run(hospital, capsys, "studies")
    head, row = text.splitlines()
    assert head.split() == ["study", "name", "asked", "by", "came", "state"]
    assert row.startswith(made.hash[:12])
    assert "waiting for a decision" in row
    text = run(hospital, capsys, "studies", made.hash[:6])
    assert "Does the marker tell who relapses?" in text
    assert f"fedcohort node approve {made.hash[:12]} " in text and "--kit STEWARD_KIT" in text
    text = run(hospital, capsys, "approve", made.hash[:6], "--kit", str(hospital.steward))
    assert text.startswith(f"small ({made.hash[:12]}) is approved by steward-north, until ")
    assert hospital.offered(made)["state"] == "approved"
    assert "approved by steward-north" in run(hospital, capsys, "studies")
    assert "runs now" not in run(hospital, capsys, "studies"), "others may not have decided yet"
    assert hospital.node.facts()["running"] == []
    hospital.call(made.hash)
    assert "1 run (1 used, 0 left), runs now" in run(hospital, capsys, "studies")
    assert len(hospital.node.facts()["running"]) == 1


def test_a_refusal_needs_a_reason_which_the_lead_reads(hospital, capsys):
    made, _ = offered(hospital)
    kit = ("--kit", str(hospital.steward))
    with pytest.raises(InputError, match="the study's lead reads it"):
        run(hospital, capsys, "refuse", made.hash, "--reason", "  ", *kit)
    run(hospital, capsys, "refuse", made.hash, "--reason", "No ethics vote.", *kit)
    assert hospital.offered(made)["reason"].endswith("refused the study: No ethics vote.")
    assert "No ethics vote" in run(hospital, capsys, "studies")


def test_only_this_sites_steward_decides(hospital, capsys):
    made, _ = offered(hospital)
    with pytest.raises(InputError, match=r"signed by its data steward; give .* 'steward-north'"):
        run(hospital, capsys, "approve", made.hash)
    people = hospital.folder / "net" / "people"
    for other in (people / "steward-south", people / "lead", hospital.kit.folder):
        with pytest.raises((InputError, Refused)):
            run(hospital, capsys, "approve", made.hash, "--kit", str(other))
    assert hospital.offered(made)["state"] == "waiting"


def test_a_steward_of_another_network_decides_nothing(hospital, capsys, tmp_path):
    from fedcohort.network.kits.make import Network

    Network.new(tmp_path / "elsewhere", sites=["north"])
    foreign = tmp_path / "elsewhere" / "people" / "steward-north"
    made, _ = offered(hospital)
    with pytest.raises(InputError, match="'steward-north' is none"):
        run(hospital, capsys, "approve", made.hash, "--kit", str(foreign))
    assert hospital.offered(made)["state"] == "waiting"


def test_an_automatic_site_needs_no_signature_to_refuse(tmp_path, capsys):
    made = Hospital(tmp_path)
    study = made.signed()
    made.approved(study)
    assert "approved by policy" in run(made, capsys, "studies")
    run(made, capsys, "refuse", study.hash[:8], "--reason", "Not this week.")
    assert made.offered(study)["state"] == "refused"
    made.node.close()


def test_the_budget_is_told_honestly(hospital, capsys):
    text = run(hospital, capsys, "budget")
    for line in (
        "allowed   ε 3, δ 0.00001",
        "reserved  ε 0, δ 0",
        "spent     ε 0",
        "left      ε 3",
    ):
        assert line in text
    assert "spends its epsilon and delta for each fit" in text
    from fedcohort.network.state.budget import Budget

    config = hospital.node.config
    budget = Budget(hospital.state / "budget.sqlite", config.data.name, config.policy.budget)
    budget.reserve("ab" * 32, "fit", 0.5, 1e-6)
    text = run(hospital, capsys, "budget")
    assert "left      ε 2.5, δ 0.000009" in text
    assert "study abababababab:" in text


def test_a_site_without_a_budget_says_that_none_is_set(tmp_path, capsys):
    made = Hospital(tmp_path)
    assert "none is set in node.toml" in run(made, capsys, "budget")
    made.node.close()


def test_the_ledger_says_what_left_by_study(hospital, capsys):
    made, _ = offered(hospital)
    run(hospital, capsys, "approve", made.hash, "--kit", str(hospital.steward))
    hospital.offered(made)
    for call in range(3):
        hospital.call(made.hash, call=call)
    hospital.call(made.hash, session="steal")
    other, _ = offered(hospital, 1)
    hospital.call(other.hash)
    text = " ".join(run(hospital, capsys, "ledger").split())
    assert f"small ({made.hash[:12]}), of lead" in text
    assert "tell counts: 3 times, 8 numbers each (read, excluded, analysed, rows" in text
    assert "TOLD AS THIS SITE'S OWN: Rows and events of the site" in text
    assert "the study has no session of that name" in text
    assert f"the study {other.hash[:12]} is not approved" in text
    text = run(hospital, capsys, "ledger", other.hash[:8])
    assert "tell counts" not in text


def test_whether_the_table_fits_is_seen_before_a_decision(hospital, capsys):
    made, _ = offered(hospital)
    text = run(hospital, capsys, "studies", made.hash, "--check")
    assert "It fits the study's dictionary" in text
    hospital.table.write_text(hospital.table.read_text().replace(",II,", ",IX,"))
    text = " ".join(run(hospital, capsys, "studies", made.hash, "--check").split())
    assert "column 'grade' breaks the rule 'levels'" in text
    assert "IX" not in text


def test_commands_name_what_is_missing(hospital, capsys, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"this is no kit\. Name the site's kit: --node KIT"):
        app(["node", "studies", "--node", str(tmp_path)], standalone_mode=False)
    lead = hospital.folder / "net" / "people" / "lead"
    with pytest.raises(InputError, match="the kit of a lead"):
        app(["node", "studies", "--node", str(lead)], standalone_mode=False)
    south = hospital.folder / "net" / "sites" / "south"
    with pytest.raises(InputError, match="no node ran here yet"):
        app(["node", "budget", "--node", str(south)], standalone_mode=False)
    monkeypatch.setenv("FEDCOHORT_NODE", str(hospital.kit.folder))
    assert "No study" in run(hospital, capsys, "studies", kit=False)
    offered(hospital)
    with pytest.raises(InputError, match="no study here has a hash"):
        run(hospital, capsys, "approve", "99999999", "--kit", str(hospital.steward))


def test_a_running_node_heeds_a_decision_within_a_second(hospital):
    """The command in a process of its own; the node answers the call after it by it."""
    made, _ = offered(hospital)

    def fedcohort(*words):
        done = subprocess.run(
            [sys.executable, "-m", "fedcohort.apps.cli", "node", *words,
             "--node", str(hospital.kit.folder), "--kit", str(hospital.steward)],
            capture_output=True, text=True, env=os.environ, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    assert hospital.call(made.hash)["reason"] == "unapproved"
    fedcohort("approve", made.hash[:8])
    began = time.monotonic()
    assert hospital.offered(made)["state"] == "approved"
    assert hospital.call(made.hash)["kind"] == "reply"
    assert time.monotonic() - began < 1
    fedcohort("refuse", made.hash[:8], "--reason", "Stop.")
    assert hospital.call(made.hash, call=1)["reason"] == "refused"


def test_an_expired_certificate_of_a_steward_decides_nothing(hospital):
    from datetime import timedelta

    from fedcohort.network.state import signatures, study_store
    from fedcohort.secure.certificates import now
    from fedcohort.secure.trust import Trust

    made, _ = offered(hospital)
    later = Trust(hospital.kit.root, clock=lambda: now() + timedelta(days=500))
    store = signatures.open_store(hospital.kit, hospital.node.config.policy, hospital.state, later)
    kit = Kit.read(hospital.steward)
    with pytest.raises(InputError):
        store.decide(
            made.hash, study_store.APPROVED, kit.name, sign=signatures.signer(kit, "north")
        )


# until when, how often, and what has ended ---------------------------------------------------


def close(hospital, study, **meta):
    from fedcohort.protocol.wire import encode

    return hospital.ask(encode({}, {"kind": "close", "run": study, "over": True, **meta}))


def test_an_approval_says_until_when_and_for_how_many_runs_and_the_site_sets_the_default(
    hospital, capsys
):
    kit = ("--kit", str(hospital.steward))
    made, _ = offered(hospital)
    for day in ("soon", "2020-01-01", "2099-01-01", "2027-02-30"):
        with pytest.raises(InputError, match="--until"):
            run(hospital, capsys, "approve", made.hash, *kit, "--until", day)
    last = decisions.until(7)
    text = run(hospital, capsys, "approve", made.hash, *kit, "--until", last, "--runs", "3")
    assert text.endswith(f"is approved by steward-north, until {last}, for 3 runs.\n")
    assert f"until {last}, 3 runs (0 used, 3 left)" in run(hospital, capsys, "studies")
    text = run(hospital, capsys, "approve", made.hash, *kit)
    assert text.endswith(f"until {decisions.until(90)}, for 1 run.\n")
    hospital.policy |= {"approval_days": 14, "approval_runs": 2}
    hospital.restart()
    text = run(hospital, capsys, "approve", made.hash, *kit)
    assert text.endswith(f"until {decisions.until(14)}, for 2 runs.\n")


def test_a_study_that_ended_does_not_wait_and_cannot_be_approved(hospital, capsys):
    """Refused elsewhere, before anyone here had decided: the desk says so, and what to do."""
    made, _ = offered(hospital)
    kit = ("--kit", str(hospital.steward))
    close(hospital, made.hash, end="refused", reason="site 'south': no ethics\x1b[2J vote.")
    text = run(hospital, capsys, "studies")
    assert "ended: refused elsewhere, site 'south': no ethics?[2J vote" in text
    assert "waiting for a decision" not in text
    facts = hospital.node.facts()
    assert (facts["waiting"], facts["running"]) == ([], [])
    assert "To decide" not in run(hospital, capsys, "studies", made.hash)
    with pytest.raises(InputError, match=r"nothing to approve\. If its lead submits it again, it"):
        run(hospital, capsys, "approve", made.hash, *kit)
    assert hospital.offered(made)["state"] == "waiting", "asked for again"
    assert "waiting for a decision" in run(hospital, capsys, "studies")
    run(hospital, capsys, "approve", made.hash, *kit)
    assert hospital.offered(made)["state"] == "approved"


def test_a_study_that_this_site_refused_is_not_said_to_be_refused_elsewhere(hospital, capsys):
    made, _ = offered(hospital)
    kit = ("--kit", str(hospital.steward))
    run(hospital, capsys, "refuse", made.hash, "--reason", "No ethics vote.", *kit)
    why = "site 'north': the data steward refused the study: No ethics vote"
    close(hospital, made.hash, end="refused", reason=why)
    text = run(hospital, capsys, "studies")
    assert text.count("No ethics vote") == 1
    assert "elsewhere" not in text
    other, _ = offered(hospital, 1)
    close(hospital, other.hash, end="refused", reason="site 'north': its table does not fit.")
    text = run(hospital, capsys, "studies", other.hash)
    assert "Ended: refused, site 'north': its table does not fit" in " ".join(text.split())


def test_a_study_that_failed_runs_no_longer_and_goes_on_under_its_approval(hospital, capsys):
    from fedcohort.protocol.wire import encode

    made, _ = offered(hospital)
    kit = ("--kit", str(hospital.steward))
    run(hospital, capsys, "approve", made.hash, *kit)
    hospital.offered(made)
    assert hospital.call(made.hash)["kind"] == "reply"
    end = {"kind": "end", "run": made.hash, "end": "failed", "reason": "south did not answer."}
    hospital.ask(encode({}, end))
    assert hospital.node.facts()["running"] == []
    assert "; ended: failed, south did not answer" in run(hospital, capsys, "studies")
    with pytest.raises(InputError, match="Its lead can resume it: the approval by steward-north"):
        run(hospital, capsys, "approve", made.hash, *kit)
    hospital.restart()
    assert hospital.call(made.hash, call=1)["kind"] == "reply", "a resumed run is no new one"
    assert len(hospital.node.facts()["running"]) == 1
    assert "ended" not in run(hospital, capsys, "studies")


def a_year_and_a_half_later(monkeypatch):
    """Let it be a day on which no certificate of the network is good."""
    from datetime import timedelta

    from fedcohort.network.kits import kit
    from fedcohort.secure.certificates import now

    later = lambda: now() + timedelta(days=500)  # noqa: E731
    monkeypatch.setitem(kit.Kit.trust.__kwdefaults__, "clock", later)


def test_all_decisions_are_listed_with_signatures_verified(hospital, capsys, monkeypatch):
    kit = ("--kit", str(hospital.steward))
    one, _ = offered(hospital)
    two, _ = offered(hospital, 1)
    assert "None was made." in run(hospital, capsys, "history")
    run(hospital, capsys, "approve", one.hash, *kit, "--runs", "2")
    hospital.offered(one)
    hospital.call(one.hash)
    run(hospital, capsys, "refuse", two.hash, "--reason", "No ethics vote.", *kit)
    path = hospital.state / "desk" / one.hash / "decisions.jsonl"
    forged = json.loads(path.read_text()) | {"number": 7, "runs": 1000}
    with path.open("a") as file:
        file.write(json.dumps(forged) + "\n")
    text = " ".join(run(hospital, capsys, "history").split())
    assert "signed by its data steward, and the signature is verified" in text
    assert "Left out: 1 line without a signature that counts here" in text
    assert "2 runs (1 used, 1 left)" in text and "1000" not in text
    assert "refused by steward-north" in text and ": No ethics vote decision 1: in force" in text
    alone = run(hospital, capsys, "history", two.hash[:8])
    assert "No ethics vote" in alone and one.hash[:12] not in alone
    # a certificate that has ended since takes nothing from the history
    a_year_and_a_half_later(monkeypatch)
    told = run(hospital, capsys, "history", two.hash[:8])
    assert "refused by steward-north" in told
    assert "no longer in force: the steward's certificate has ended" in told


def test_the_history_says_what_was_revoked_replaced_used_up_and_ended(hospital, capsys):
    kit = ("--kit", str(hospital.steward))
    revoked, _ = offered(hospital)
    run(hospital, capsys, "approve", revoked.hash, *kit)
    run(hospital, capsys, "approve", revoked.hash, *kit, "--runs", "2")
    run(hospital, capsys, "refuse", revoked.hash, "--reason", "Stop.", *kit)
    used, _ = offered(hospital, 1)
    run(hospital, capsys, "approve", used.hash, *kit)
    hospital.offered(used)
    hospital.call(used.hash)
    close(hospital, used.hash)
    hospital.offered(used)
    ended, _ = offered(hospital, 2)
    run(hospital, capsys, "approve", ended.hash, *kit)
    close(hospital, ended.hash, end="failed", reason="south did not answer.")
    said = {
        made.hash: [
            line.strip()
            for line in run(hospital, capsys, "history", made.hash).splitlines()
            if line.startswith("  decision")
        ]
        for made in (revoked, used, ended)
    }
    one, two, three = said[revoked.hash]
    assert one.startswith("decision 1: replaced on ") and one.endswith(" by decision 2")
    assert two.startswith("decision 2: revoked on ") and two.endswith(" by decision 3")
    assert three == "decision 3: in force"
    assert said[used.hash][0].startswith("decision 1: no longer in force: the approval of ")
    assert said[used.hash][0].endswith(" was for 1 run, which was made")
    assert said[ended.hash] == ["decision 1: the study ended: failed, south did not answer"]


# the page on paper ---------------------------------------------------------------------------


def exported(hospital, capsys, *words):
    """Write a page; return its text, and its HTML."""
    out = hospital.folder / "page.html"
    assert run(hospital, capsys, "export", *words, "--out", str(out)) == f"written: {out}\n"
    page = out.read_text()
    body = page[page.index("<body>") :]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split()), page


def test_the_page_to_sign_names_study_decision_its_hash_and_who_signs(hospital, capsys):
    made = hospital.signed(
        hospital.terms(STUDY.replace("Does the marker", "Does <b>the</b> marker"))
    )
    hospital.offered(made)
    text, page = exported(hospital, capsys, made.hash[:8])
    assert made.hash in text
    assert "No decision has been made at the node yet." in text
    assert "☐ approved, until" in text
    assert "Does <b>the</b> marker" in text and "<b>" not in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    kit = ("--kit", str(hospital.steward))
    run(hospital, capsys, "approve", made.hash, *kit, "--until", decisions.until(9), "--runs", "3")
    text, page = exported(hospital, capsys, made.hash[:8], "--check")
    line = json.loads((hospital.state / "desk" / made.hash / "decisions.jsonl").read_text())
    signed = [
        "fedcohort decision 2", "net", "north", made.hash, 1, "approved", "", "steward-north",
        line["at"], decisions.until(9), 3,
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(signed, separators=(",", ":")).encode()).hexdigest()
    assert text.count(digest) == 2, "under the page, and among all decisions"
    assert digest in run(hospital, capsys, "history", made.hash)
    assert f"until {decisions.until(9)}, 3 runs (0 used, 3 left)" in text
    for who in ("Data steward, north", "Data protection officer, north"):
        assert f"{who} Name Place and date Signature" in text
    assert "160 of your table" in text, "checked"
    assert "tell counts (read, excluded" in text, "the details are below"
    for cell in ("P00001", "note 7"):
        assert cell not in page


def test_the_page_of_the_desk_has_every_study_and_every_decision(hospital, capsys):
    kit = ("--kit", str(hospital.steward))
    one, _ = offered(hospital)
    two, _ = offered(hospital, 1)
    three, _ = offered(hospital, 2)
    run(hospital, capsys, "approve", one.hash, *kit)
    run(hospital, capsys, "refuse", one.hash, "--reason", "No ethics vote.", *kit)
    close(hospital, two.hash, end="cancelled", reason="by lead")
    text, _ = exported(hospital, capsys)
    studies, _, rest = text.partition("All decisions")
    for made in (one, two, three):
        assert made.hash[:12] in studies
    assert "waiting for a decision" in studies
    assert "ended: cancelled, by lead" in studies
    assert "1 run (0 used, 1 left). Decision 1: revoked on" in rest
    assert "refused by steward-north: No ethics vote" in rest
    assert "left ε 3, δ 0.00001" in rest


def test_a_page_is_not_written_over_a_file_that_is_none(hospital, capsys):
    made, _ = offered(hospital)
    out = hospital.folder / "page.html"
    out.write_text("mine")
    with pytest.raises(FedcohortError, match="it exists"):
        run(hospital, capsys, "export", made.hash, "--out", str(out))
    with pytest.raises(FedcohortError, match="it is an input"):
        run(hospital, capsys, "export", made.hash, "--out", str(hospital.state / "log.txt"))
    assert out.read_text() == "mine"


def test_a_decided_study_has_its_page_after_the_leads_certificate_has_ended(
    hospital, capsys, monkeypatch
):
    made, _ = offered(hospital)
    waiting, _ = offered(hospital, 1)
    run(hospital, capsys, "approve", made.hash, "--kit", str(hospital.steward))
    today = decisions.now()[:10]
    a_year_and_a_half_later(monkeypatch)
    text, _ = exported(hospital, capsys, made.hash)
    assert f"the signature is verified as of {today}." in text
    assert "approved by steward-north" in text
    assert "no longer in force: the steward's certificate has ended" in text
    with pytest.raises(Refused, match="was valid until"):
        run(hospital, capsys, "studies", waiting.hash)
