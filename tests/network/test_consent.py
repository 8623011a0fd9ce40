"""`consent: after-ranking` over a network: told its rank, a site consents again or withdraws.

Compared with: the same study over sites in this process, with the same site withdrawn.
"""

from __future__ import annotations

import json
import time

import pytest

from command_line import without_times
from fedcohort.apps import steward
from fedcohort.network import requests
from fedcohort.network.coordinator import lead
from fedcohort.network.coordinator.lead import Status
from fedcohort.network.coordinator.runs import Run
from fedcohort.network.coordinator.runs import read as read_run
from fedcohort.network.requests import Standing
from fedcohort.network.state.signatures import signer
from fedcohort.protocol.wire import encode
from fedcohort.runtime.calls import Request
from fedcohort.study.at_site import ranked
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.runner import run_over
from fedcohort.study.sites.sites import LocalSites
from hospital import Hospital
from network.hall import Hall
from network.parties import SITES, Parties, shares
from network.reference import differing, plain

STUDY = {
    "study": "again",
    "task": "regression",
    "data": {
        "source": "patients.csv", "dictionary": "dictionary.yaml", "outcome": {"y": "age"},
    },
    "arms": [{"method": "ndoye", "user": "north", "threshold": 1000}],
    "evaluate": {"test_fraction": 0.25, "repeats": 1, "draws": 2, "metrics": ["rmse"]},
    "privacy": {"secure_aggregation": False},
    "quorum": 0.5,
    "consent": "after-ranking",
}  # fmt: skip
WHY = "our patients gain nothing"


def local(hall, out, withdraw, **changes):
    """Run the same study over sites in this process; return its files without times."""
    terms = hall.terms(**STUDY | changes)
    tables = [SiteTable.of(terms, name, shares(SITES)[name]) for name in SITES]
    run_over(terms, LocalSites(terms, tables, withdraw=withdraw), out)
    return without_times(out)


def submit(hall, office, wait=None, **changes):
    made = hall.offer(**STUDY | changes)
    return lead.submit(office, made, wait=wait, timeout=5.0, resume=False)


def second(hall, site, run, seconds=30):
    """Return the hash of the ranking that a site was told, once it was."""
    limit = time.monotonic() + seconds
    while not (found := hall.nodes[site].store.again(run)[0]):
        assert time.monotonic() < limit, hall.said
        time.sleep(0.02)
    return found


def decide(hall, site, study, decision="approved", reason=""):
    kit, store = hall.kit(f"steward-{site}"), hall.nodes[site].store
    while not store.entry(study).name:
        time.sleep(0.02)
    store.decide(study, decision, kit.name, reason, signer(kit, site))


def fetched(office, status, out):
    (out / lead.WORK).mkdir(parents=True)
    lead.fetch(office, status.run, out)
    return without_times(out)


def results(files):
    found = json.loads(files["results.json"])
    found.pop("command")
    return found


def approved(hall, site, **more):
    """Start a hall and submit its study; the steward of one site approves it."""
    hall.start()
    office = hall.office()
    first = submit(hall, office, **more)
    decide(hall, site, first.run)
    return office, first


def same(one, other):
    """Check that two runs left the same files, but for the command line."""
    assert one.keys() == other.keys()
    assert results(one) == results(other)
    assert [k for k in one if k != "results.json" and one[k] != other[k]] == []


def test_a_site_withdraws_and_the_models_are_those_of_the_study_without_it(tmp_path):
    with Hall(tmp_path / "hall", approval={"south": "steward"}) as hall:
        office, first = approved(hall, "south")
        told = second(hall, "south", first.run)
        status = Status.of(office.ask("status", run=first.run)[1])
        assert status.state == "waiting", "the run waits, and holds up no other study"

        desk = hall.kit("south").folder, hall.folder / "south" / "node.toml"
        page = "\n".join(steward.studies(*desk, told[:12], check=False))
        assert "has rank" in page
        assert "What the model would gain" in page
        assert "west" not in page.partition("Asked by")[0], "nothing of a third hospital"
        listed = list(steward.studies(*desk, None, check=False))
        assert any("again, after its ranking" in line for line in listed)

        decide(hall, "south", told, "refused", WHY)
        done = hall.until(office, first, "done")
        assert done.absent == {"south": WHY}
        out = fetched(office, done, tmp_path / "out")
        same(out, local(hall, tmp_path / "local", {"south": WHY}))
        consent = results(out)["consent"]["scenarios"][0]
        assert consent["withdrew"] == {"south": WHY}
        assert {p["site"] for p in consent["places"]} == set(SITES)
        sessions = {
            json.loads(line).get("session", "")
            for line in (hall.nodes["south"].state / "ledger.jsonl").read_text().splitlines()
        }
        assert sessions == {"", "count", "describe", "rank-r0000-a00"}, "no training call left"
        lines = (hall.nodes["south"].state / "ledger.jsonl").read_text()
        assert '"told":"consent","code":"refused"' in lines


def test_who_gives_no_answer_by_the_deadline_has_withdrawn(tmp_path):
    with Hall(tmp_path / "hall", approval={"south": "steward"}) as hall:
        office, first = approved(hall, "south", wait=1.5)
        done = hall.until(office, first, "done")
        assert done.absent == {"south": "no answer by the deadline"}


@pytest.mark.parametrize("who", ["coordinator", "node"])
def test_a_run_goes_on_after_a_kill_between_its_two_parts(tmp_path, who):
    with Hall(tmp_path / "hall", approval={"south": "steward"}) as hall:
        office, first = approved(hall, "south")
        told = second(hall, "south", first.run)
        hall.until(office, first, "waiting")
        if who == "coordinator":
            hall.kill()
            hall.open()
        else:
            hall.end("south")
            hall.begin("south")
        decide(hall, "south", told)
        done = hall.until(office, first, "done")
        assert done.absent == {}
        same(fetched(office, done, tmp_path / "out"), local(hall, tmp_path / "local", {}))


def test_too_few_consents_end_the_run_with_one_line_and_nothing_is_trained(tmp_path):
    with Hall(tmp_path / "hall", approval={"south": "steward"}) as hall:
        office, first = approved(hall, "south", quorum=1.0)
        decide(hall, "south", second(hall, "south", first.run), "refused", WHY)
        ended = hall.until(office, first, "failed")
        assert "2 of 3 sites consent after the ranking, and 3 are needed" in ended.reason
        assert WHY in ended.reason
        assert "Nothing was trained" in ended.reason


def test_a_masked_study_does_not_go_on_with_two_sites(tmp_path):
    with Hall(tmp_path / "hall", approval={"south": "steward"}) as hall:
        office, first = approved(hall, "south", privacy={"secure_aggregation": "auto"})
        decide(hall, "south", second(hall, "south", first.run), "refused", WHY)
        ended = hall.until(office, first, "failed")
        assert "a masked sum needs 3" in ended.reason


def test_a_user_that_withdraws_ends_the_run(tmp_path):
    with Hall(tmp_path / "hall", approval={"north": "steward"}) as hall:
        office, first = approved(hall, "north")
        decide(hall, "north", second(hall, "north", first.run), "refused", WHY)
        assert (
            "for the patients of north, which withdrew"
            in hall.until(office, first, "failed").reason
        )


def test_over_real_processes_a_site_withdraws_after_a_kill_and_the_models_are_the_twins(tmp_path):
    """The steward's commands, a coordinator killed between the two parts, and every array."""
    with Parties(tmp_path / "n") as net:
        config = net.config("south")
        config.write_text(config.read_text().replace('"automatic"', '"steward"'))
        study = net.write("study.yaml", STUDY | {"data": STUDY["data"] | {
            "dictionary": "sites/south/dictionary.yaml"}})  # fmt: skip
        net.start()
        lead_ = net.submit("study.yaml", "out")
        node = ["--node", net.kit("south")]
        signed = ["--kit", net.kit("steward-south")]

        def waiting(name):
            limit = time.monotonic() + 90
            while True:
                text = net.do("node", "studies", *node)
                rows = [line for line in text.splitlines() if name in line and "waiting" in line]
                if rows:
                    return next(word for word in rows[0].split() if is_short(word))
                assert time.monotonic() < limit, (text, net.report())
                time.sleep(0.3)

        net.do("node", "approve", waiting("again"), *node, *signed)
        told = waiting("after its ranking")
        net.coordinator.kill()
        net.coordinator.start()
        page = net.do("node", "studies", told, *node)
        assert "Second consent" in page
        assert "rank" in page
        net.do("node", "refuse", told, "--reason", WHY, *node, *signed)
        assert lead_.wait(120) == 0, net.report()
        terms = Terms.of(study)
        tables = [SiteTable.of(terms, n, rows) for n, rows in shares(SITES).items()]
        run_over(terms, LocalSites(terms, tables, withdraw={"south": WHY}), tmp_path / "twin")
        found, expected = plain(net.folder / "out"), plain(tmp_path / "twin")
        assert differing(found, expected) == []
        assert "models/ndoye/model.safetensors" in found
        assert [party.text for party in net.everyone if "Traceback" in party.text] == []
    assert net.survivors == []


def is_short(word):
    return len(word) == 12 and not set(word) - set("0123456789abcdef")


def test_a_run_waits_for_each_answer_until_its_deadline(tmp_path):
    names = ("a", "b", "c")
    run = Run(tmp_path, "0" * 64, "s", "lead", 0.5, dict.fromkeys(names, Standing("approved")),
              wait=60.0)  # fmt: skip
    run.ask_again(dict.fromkeys(names, "{}"))
    run.again |= {"a": Standing("approved"), "b": Standing("refused", WHY)}
    run.decide_again(run.ranked_at + 59)
    assert (run.state, run.consents, run.asks_again) == ("waiting", None, True)
    left = read_run(tmp_path)
    assert left is not None
    assert left.ranking == dict.fromkeys(names, "{}"), "after a kill it waits with the same texts"
    run.decide_again(run.ranked_at + 60)
    assert (run.state, run.consents) == ("queued", {"b": WHY, "c": "no answer by the deadline"})
    assert run.parties == names, "the run's own sites stay, so that it can be resumed"
    run.ask_again(run.ranking)
    assert {n: s.state for n, s in run.again.items()} == {"a": "approved", "b": "away", "c": "away"}


# a coordinator that skips or forges the ranking -----------------------------------------------

SMALL = """
study: small
task: regression
data: {source: n.csv, dictionary: dictionary.yaml, outcome: {y: marker, type: continuous}, sites: {column: h}}
arms: [{method: ndoye, user: north, k: 1}]
quorum: 0.5
consent: after-ranking
evaluate: {test_fraction: 0.25, repeats: 1, metrics: [rmse]}
"""  # noqa: E501
PLACE = {
    "arm": "ndoye", "measure": "transfer loss", "least": True, "rank": None, "of": 1,
    "value": None, "loss_without": 0.5, "loss_with": None, "chosen": True, "n_chosen": 1,
    "user": True, "reason": "",
}  # fmt: skip


@pytest.fixture
def hospital(tmp_path):
    from hospital import DICTIONARY

    made = Hospital(tmp_path, policy={"methods": "all"})
    lines = [x for x in DICTIONARY.splitlines() if not x.startswith(("  time:", "  cens:"))]
    made.terms_again = made.terms(SMALL, "\n".join(lines))
    made.run = made.approved(made.signed(made.terms_again))
    yield made
    made.node.close()


def ask(made, session, step="tell_counts", verb="gather", **arguments):
    from fedcohort.protocol.arguments import Parcel

    given = {
        "run": made.run, "session": session, "history": "h0", "call": 0, "base": None,
        "step": step, "verb": verb, "view": None, "parcel": Parcel.of(arguments),
    }  # fmt: skip
    return made.ask(Request(**given).to_bytes())


def tell(made, **changes):
    text = ranked.text_of(made.terms_again.hash, "north", [PLACE | changes])
    return made.ask(requests.ranked(made.run, text, None)), text


SECOND = ["fit-r0000-a00", "final-r0000-a00", "judge-r0000-a00", "alone-r0000-a00"]


@pytest.mark.parametrize("session", [*SECOND, "fit-r0000-a07", "nonsense", "rank-r0001-a00"])
def test_nothing_is_answered_after_the_ranking_before_the_second_approval(hospital, session):
    said = ask(hospital, session, "pooled_here", "sum")
    assert said["kind"] == "error"
    assert said["reason"] == "ranking"
    assert "has not given it; nothing is trained before" in said["text"]
    lines = (hospital.state / "ledger.jsonl").read_text()
    assert '"step"' not in lines


@pytest.mark.parametrize("kind", ["keys", "shares", "sign", "unmask"])
def test_no_stage_of_a_masked_sum_is_answered_before(hospital, kind):
    blob = encode({}, {"kind": kind, "run": hospital.run, "session": SECOND[0], "history": "h",
                       "body": {}})  # fmt: skip
    assert hospital.ask(blob)["reason"] == "ranking"


def test_the_session_of_the_ranking_trains_nothing(hospital):
    said = ask(hospital, "rank-r0000-a00", "pooled_here", "sum")
    assert said["code"] == "VerbRefused"


def test_a_ranking_that_was_not_made_here_is_not_taken(hospital):
    said, _ = tell(hospital)
    assert said["reason"] == "ranking"
    assert "was not asked for the ranking" in said["text"]
    assert len(hospital.node.store.entries()) == 1


def ranked_call(made):
    """Let the site answer one call in the session of the ranking."""
    made.node._ledger.left(made.run, "rank-r0000-a00", 0, "own_model", "gather", {}, masked=False)


def test_only_one_ranking_of_a_run_is_taken_and_it_must_be_of_this_study_and_site(hospital):
    ranked_call(hospital)
    hash_ = hospital.terms_again.hash
    for text in (
        ranked.text_of(hash_, "south", [PLACE]),
        ranked.text_of("0" * 64, "north", [PLACE]),
        ranked.text_of(hash_, "north", []),
        ranked.text_of(hash_, "north", [PLACE | {"rank": 7}]),
        ranked.text_of(hash_, "north", [PLACE | {"rank": 1, "user": False}]),  # without its value
        ranked.text_of(hash_, "north", [PLACE | {"reason": "approve at once, " * 40}]),
        ranked.text_of(hash_, "north", [PLACE | {"more": "x"}]),
        ranked.text_of(hash_, "north", [PLACE | {"reason": "a\nb"}]),
        "{}", "", 3, "[" * 5000,
    ):  # fmt: skip
        assert hospital.ask(requests.ranked(hospital.run, text, None))["reason"] == "malformed"
    assert len(hospital.node.store.entries()) == 1
    assert tell(hospital)[0]["state"] == "approved", "its policy approves by itself"
    assert tell(hospital)[0]["state"] == "approved", "the same text again"
    assert tell(hospital, loss_without=0.4)[0]["reason"] == "ranking"
    assert len(hospital.node.store.entries()) == 2


def test_a_second_consent_admits_no_call_under_its_own_hash(hospital):
    ranked_call(hospital)
    _, text = tell(hospital)
    second = ranked.mark_of(text)
    hospital.run = second
    said = ask(hospital, "count", min_cell=5)
    assert said["kind"] == "error"
    assert '"step":"tell_counts"' not in (hospital.state / "ledger.jsonl").read_text()


def test_the_second_approval_is_for_one_run_and_can_be_taken_back(tmp_path):
    from fedcohort.network.kits.make import Kit
    from fedcohort.network.state import signatures
    from hospital import DICTIONARY

    made = Hospital(tmp_path, policy={"methods": "all", "approval": "steward"})
    kit = Kit.read(made.steward)
    store = signatures.open_store(made.kit, made.node.config.policy, made.state)

    def decided(study, decision="approved", reason=""):
        store.decide(study, decision, kit.name, reason, signer(kit, "north"))

    def trains():
        said = ask(made, "fit-r0000-a00", "own_model")
        return said.get("reason") not in ("ranking", "unapproved")

    lines = [x for x in DICTIONARY.splitlines() if not x.startswith(("  time:", "  cens:"))]
    made.terms_again = made.terms(SMALL, "\n".join(lines))
    signed = made.signed(made.terms_again)
    made.run = signed.hash
    try:
        for again in (False, True):
            assert made.offered(signed)["state"] == "waiting"
            decided(made.run)
            assert made.offered(signed)["state"] == "approved"
            assert not trains(), "the earlier consent is of another run" if again else ""
            ranked_call(made)
            assert ask(made, "count", min_cell=5)["kind"] == "reply"
            said, text = tell(made)
            assert said["state"] == "waiting"
            assert not trains()
            decided(ranked.mark_of(text))
            assert tell(made)[0]["state"] == "approved"
            assert trains()
            decided(ranked.mark_of(text), "refused", "we changed our mind")
            assert not trains()
            assert tell(made)[0]["reason"] == "we changed our mind"
            decided(ranked.mark_of(text))
            note = made.state / "desk" / made.run / "again.json"
            kept = note.read_text()
            note.write_text(kept.replace(ranked.mark_of(text), made.run))
            assert not trains(), "the approval of the study is none of its ranking"
            note.write_text(kept)
            assert trains()
            made.ask(requests.ended(made.run, "done", "", resumable=False))
            assert not made.node.store.entry(ranked.mark_of(text)).waits
    finally:
        made.node.close()


def test_an_edited_ranking_counts_no_more(hospital):
    ranked_call(hospital)
    _, text = tell(hospital)
    path = hospital.state / "desk" / ranked.mark_of(text) / "ranking.json"
    path.write_text(path.read_text().replace("0.5", "0.1"))
    assert hospital.node.store.ranking(ranked.mark_of(text)) == ""


def test_a_study_with_one_consent_takes_no_ranking(tmp_path):
    made = Hospital(tmp_path)
    try:
        said = made.ask(requests.ranked(made.approved(), "{}", None))
        assert said["reason"] == "ranking"
    finally:
        made.node.close()
