"""The coordinator's service, over real channels and nodes, without an engine."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest

from command_line import without_times
from fedcohort.network.coordinator import conductor, lead, runs
from fedcohort.network.coordinator.lead import Status
from fedcohort.network.node import node
from fedcohort.network.state.signatures import signer
from fedcohort.network.state.study_store import APPROVED, said_of
from fedcohort.protocol import FedcohortError
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.runtime.journal import Journal
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.run.runner import run_over as run_deployed
from fedcohort.study.sites.sites import LocalSites
from network.hall import STUDY, Hall
from network.parties import SITES, shares

#: A study that goes on with two of the three sites, who cannot hide one another.
TWO = {"quorum": 0.6, "privacy": {"secure_aggregation": False}}


def local(hall, out, names=SITES, **changes):
    """Run the same study over sites in this process; return its files without times."""
    terms = hall.terms(**changes)
    tables = [SiteTable.of(terms, name, shares(SITES)[name]) for name in names]
    run_deployed(
        terms, LocalSites(terms, tables), out, resume=False, tell=lambda event: None, command=""
    )
    return without_times(out)


def submit(hall, office, *, resume=False, wait=None, timeout=5.0, who="lead", **changes):
    return lead.submit(
        office, hall.offer(who, **changes), wait=wait, timeout=timeout, resume=resume
    )


def fetched(office, status, out):
    (out / lead.WORK).mkdir(parents=True)
    lead.fetch(office, status.run, out)
    return without_times(out)


def hold(hall, after):
    """Hold the line once the study has made `after` exchanges; return (held, release)."""
    held, go = threading.Event(), threading.Event()
    start = hall.calls

    def before(site):
        if hall.calls - start >= after and not go.is_set():
            held.set()
            go.wait(60)

    hall.before = before
    return held, go


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return a network, its lead's office, and a study that is done."""
    with Hall(tmp_path_factory.mktemp("ran") / "hall") as hall:
        hall.start()
        office = hall.office()
        yield hall, office, hall.until(office, submit(hall, office), "done")


@pytest.fixture
def hall(tmp_path):
    with Hall(tmp_path / "hall") as hall:
        yield hall


def test_a_run_over_the_network_leaves_the_files_of_a_run_in_one_process(hall, tmp_path):
    hall.start()
    office, twice = hall.office(), {"evaluate": {**STUDY["evaluate"], "repeats": 2}}
    done = hall.until(office, submit(hall, office, **twice), "done")
    assert set(done.sites) == set(SITES)
    assert fetched(office, done, tmp_path / "out") == local(hall, tmp_path / "local", **twice)


def test_a_study_that_one_site_refuses_is_not_left_open_at_those_that_approved_it(tmp_path):
    with Hall(tmp_path / "hall", policy={"west": {"methods": '["logistic"]'}}) as hall:
        hall.start()
        office = hall.office()
        hall.until(office, submit(hall, office), "refused")
        ends(hall, hall.offer().hash, "north", "south")
        log = (hall.folder / "net" / "sites" / "north" / "state" / "log.txt").read_text()
        assert "approved" in log
        assert "closed" in log


def ends(hall, run, *names):
    """Return how the sites' desks say that a study ended, once each of them says so."""
    limit = time.monotonic() + 20
    while True:
        found = [hall.nodes[name].store.entry(run) for name in names]
        if all(e.ended for e in found):
            return [(e.ended.how, e.ended.reason, e.running, e.waits) for e in found]
        assert time.monotonic() < limit, found
        time.sleep(0.05)


def test_every_desk_learns_that_a_study_was_refused_elsewhere_also_one_that_was_away(tmp_path):
    refusing = {"west": {"methods": '["logistic"]'}}
    with Hall(tmp_path / "hall", policy=refusing, approval={"south": "steward"}) as hall:
        hall.start()
        office = hall.office()
        first = submit(hall, office)
        answers = hall.up.pop("west")
        while Status.of(office.ask("status", run=first.run)[1]).sites["south"]["state"] == "away":
            time.sleep(0.02)
        hall.end("south")
        hall.up["west"] = answers
        hall.until(office, first, "refused")
        (north,) = ends(hall, first.run, "north")
        assert north[0] == "refused"
        assert "site 'west'" in north[1]
        hall.kill()
        hall.open()
        hall.begin("south")
        assert ends(hall, first.run, "south") == [north], "and a coordinator that was killed since"
        assert hall.coordinator is not None


def test_a_desk_that_could_not_note_the_end_of_a_study_is_told_again(tmp_path, monkeypatch):
    full = threading.Event()
    monkeypatch.setattr(conductor, "HUSH", 0.1)
    monkeypatch.setattr(
        node, "unwritable", lambda state: "full" if full.is_set() and "south" in str(state) else ""
    )
    refusing = {"west": {"methods": '["logistic"]'}}
    with Hall(tmp_path / "hall", policy=refusing, approval={"south": "steward"}) as hall:
        hall.start()
        answers = hall.up.pop("west")
        office = hall.office()
        first = submit(hall, office)
        while not hall.nodes["south"].store.entries():
            time.sleep(0.02)
        full.set()
        hall.up["west"] = answers
        hall.until(office, first, "refused")
        assert ends(hall, first.run, "north")[0][0] == "refused"
        time.sleep(0.3)
        assert hall.nodes["south"].store.entry(first.run).ended is None
        full.clear()
        assert ends(hall, first.run, "south")[0][0] == "refused"


def test_every_desk_learns_that_a_study_failed_and_that_it_goes_on(hall):
    hall.start()
    office = hall.office()
    held, go = hold(hall, 40)
    first = submit(hall, office, timeout=1.0)
    assert held.wait(30)
    hall.end("west")
    go.set()
    failed = hall.until(office, first, "failed")
    told = ends(hall, first.run, "north", "south")
    assert {t[0] for t in told} == {"failed"}
    assert all("west" in t[1] and not t[2] for t in told), failed.reason
    hall.begin("west")
    assert ends(hall, first.run, "west")[0][0] == "failed"
    hall.before = lambda site: None
    hall.until(office, submit(hall, office, resume=True, timeout=10.0), "done")
    assert ends(hall, first.run, *SITES) == [("done", "", False, False)] * 3


def test_a_site_that_a_study_goes_on_without_is_told_so(tmp_path):
    with Hall(tmp_path / "hall", approval={"south": "steward"}) as hall:
        hall.start()
        office = hall.office()
        late = submit(hall, office, wait=0.5, **TWO)
        assert ends(hall, late.run, "south") == [("without", "", False, False)]
        hall.until(office, late, "done")
        entry = hall.nodes["south"].store.entry(late.run)
        assert (said_of(entry.ended), entry.waits) == ("it went on without this site", False)
        assert [e[0] for e in ends(hall, late.run, "north", "west")] == ["done", "done"]
        hall.end("south")
        hall.begin("south")
        assert ends(hall, late.run, "south")[0][0] == "without", "also after a restart"


def test_the_same_study_submitted_again_asks_the_steward_again(tmp_path):
    with Hall(tmp_path / "hall", approval={"south": "steward"}) as hall:
        hall.start()
        office = hall.office()
        store = hall.nodes["south"].store

        first = submit(hall, office)
        while not store.entries():
            time.sleep(0.02)
        kit = hall.kit("steward-south")
        store.decide(first.run, APPROVED, kit.name, sign=signer(kit, "south"))
        hall.until(office, first, "done")
        again = submit(hall, office)
        assert again.run == first.run
        limit = time.monotonic() + 20
        while not (entry := store.entry(first.run)).waits:
            assert time.monotonic() < limit, entry
            time.sleep(0.02)
        assert entry.lapsed.endswith("was for 1 run, which was made")
        assert hall.nodes["south"].facts()["running"] == []
        assert Status.of(office.ask("status", run=again.run)[1]).state == "waiting"


def test_a_study_in_any_language_runs(hall, tmp_path):
    hall.start()
    office = hall.office()
    said = {"study": "Überleben – 5 Jahre", "question": "Wie lange überleben Frauen? 生存"}
    done = hall.until(office, submit(hall, office, **said), "done")
    assert done.study == said["study"]
    assert fetched(office, done, tmp_path / "out") == local(hall, tmp_path / "local", **said)


def test_a_study_waits_for_the_steward_and_then_runs(tmp_path):
    with Hall(tmp_path / "hall", approval={"south": "steward"}) as hall:
        hall.start()
        office = hall.office()
        first = submit(hall, office)
        status = first
        for _ in range(100):
            status = Status.of(office.ask("status", run=first.run)[1])
            if status.sites["south"]["state"] == "waiting":
                break
            time.sleep(0.05)
        assert status.state == "waiting"
        assert status.sites["north"]["state"] == "approved"
        approve(hall, "south", first.run)
        assert hall.until(office, first, "done").absent == {}


def approve(hall, site, run, decision="approved", reason=""):
    from fedcohort.network.state import signatures

    kit = hall.kit(f"steward-{site}")
    found = hall.nodes[site].store
    found.decide(run, decision, kit.name, reason, sign=signatures.signer(kit, site))


def test_a_policy_that_refuses_ends_the_study_with_its_reason(tmp_path):
    with Hall(tmp_path / "hall", policy={"west": {"methods": '["logistic"]'}}) as hall:
        hall.start()
        office = hall.office()
        ended = hall.until(office, submit(hall, office), "refused")
        assert "west" in ended.reason
        assert "cox" in ended.reason
        assert not (hall.home / "runs" / ended.run / "out").exists()


def test_with_a_quorum_a_refusal_leaves_the_others_and_the_result_says_so(tmp_path):
    with Hall(tmp_path / "hall", policy={"west": {"methods": '["logistic"]'}}) as hall:
        hall.start()
        office = hall.office()
        done = hall.until(office, submit(hall, office, **TWO), "done")
        assert list(done.absent) == ["west"]
        files = fetched(office, done, tmp_path / "out")
        told = json.loads(files["results.json"])["network"]["absent"]
        assert list(told) == ["west"]
        assert "logistic" in told["west"]


def test_a_site_that_is_not_there_is_left_out_after_the_wait_where_the_quorum_allows(
    hall, tmp_path
):
    hall.begin("north", "south")
    hall.open()
    office = hall.office()
    done = hall.until(office, submit(hall, office, wait=0.3, **TWO), "done")
    assert done.absent == {"west": "west was not reached"}
    results = json.loads(fetched(office, done, tmp_path / "out")["results.json"])
    assert results["network"]["absent"] == done.absent


def test_without_a_quorum_the_wait_ends_the_study_and_names_the_site(hall):
    hall.begin("north", "south")
    hall.open()
    office = hall.office()
    ended = hall.until(office, submit(hall, office, wait=0.3), "failed")
    assert "2 of 3 sites" in ended.reason
    assert "west was not reached" in ended.reason


def test_another_lead_sees_and_fetches_nothing(ran):
    hall, _, done = ran
    other = hall.office("second")
    for kind in ("status", "fetch", "cancel"):
        with pytest.raises(Refused, match="second has no such study"):
            other.ask(kind, run=done.run)
    with pytest.raises(Refused, match="another lead"):
        submit(hall, other, who="second")
    with pytest.raises(Refused, match="signed by lead"):
        submit(hall, other, who="lead")


def test_only_files_of_the_results_can_be_fetched(ran):
    _, office, done = ran
    for name in ("../run.json", "/etc/hosts", ".work/claim.json", "nothing", ""):
        with pytest.raises(Refused, match="no file of this run"):
            office.ask("fetch", run=done.run, name=name, offset=0)


def test_an_edited_study_is_refused(hall):
    hall.start()
    blob = hall.offer().to_bytes().replace(b'\\"seed\\":3', b'\\"seed\\":4')
    with pytest.raises(Refused, match="hash differs"):
        hall.office().ask("submit", offer=blob.decode())


def test_a_second_submission_of_a_run_under_way_is_refused_and_names_resume(hall):
    hall.start()
    held, go = hold(hall, 12)
    office = hall.office()
    first = submit(hall, office)
    assert held.wait(60)
    with pytest.raises(Refused, match="--resume"):
        submit(hall, office)
    assert submit(hall, office, resume=True).state == "running"
    go.set()
    hall.until(office, first, "done")


@pytest.mark.parametrize("resume", [False, True])
def test_cancel_ends_a_run_in_the_middle_of_a_call_and_it_can_begin_anew(hall, resume):
    hall.start()
    held, go = hold(hall, 12)
    office = hall.office()
    first = submit(hall, office)
    assert held.wait(60)
    began = time.monotonic()
    lead.cancel(office, first.run)
    go.set()
    assert hall.until(office, first, "cancelled").reason == "by lead"
    assert time.monotonic() - began < 8
    hall.before = lambda site: None
    hall.until(office, submit(hall, office, resume=resume), "done")


@pytest.mark.parametrize("after", [10, 33])
def test_a_run_whose_coordinator_was_killed_ends_bit_equal(hall, tmp_path, after):
    hall.start()
    held, go = hold(hall, after)
    first = submit(hall, hall.office())
    assert held.wait(60)
    hall.kill()
    go.set()
    hall.before = lambda site: None
    hall.open()
    office = hall.office()
    done = hall.until(office, submit(hall, office, resume=True), "done")
    assert done.run == first.run
    assert fetched(office, done, tmp_path / "out") == local(hall, tmp_path / "local")


STATES = {
    "task": "classification", "arms": [{"method": "logistic", "solver": "admm", "l2": 0.01}],
    "data": {"source": "sample:gbsg2", "outcome": {"y": "cens"}},
    "preprocess": {"impute": "median", "scale": "standard"},
    "evaluate": {"test_fraction": 0.25, "repeats": 1, "draws": 2},
}  # fmt: skip
CLEAR = r"Start again without --resume|start the study again without --resume"


def ended(hall, office, first):
    """Wait until a run is done, or failed; return how it ended."""
    limit = time.monotonic() + 60
    while (status := Status.of(office.ask("status", run=first.run)[1])).open:
        assert time.monotonic() < limit, hall.said
        time.sleep(0.02)
    return status


def damaged(path, how):
    """Damage a file, as a disk does."""
    blob = bytearray(path.read_bytes())
    third = len(blob) // 3
    if how == "cut":
        del blob[2 * third :]
    elif how == "head":
        blob[:16] = bytes(16)
    elif how == "middle":
        blob[third : third + 64] = bytes(64)
    elif how == "empty":
        blob.clear()
    path.write_bytes(blob)


@pytest.mark.parametrize(
    ("how", "changes"),
    [
        ("cut", {}),
        ("head", STATES),
        ("middle", STATES),
        ("empty", {}),
        ("cut", STATES),
        ("head", {}),
        ("middle", {}),
        ("empty", STATES),
    ],
    ids=lambda v: v if isinstance(v, str) else "states" if v else "no states",
)
def test_a_damaged_journal_gives_the_known_result_or_a_clear_line(hall, tmp_path, how, changes):
    hall.start()
    held, go = hold(hall, 24)
    submit(hall, hall.office(), **changes)
    assert held.wait(60)
    hall.kill()
    go.set()
    hall.before = lambda site: None
    journals = [p for p in (hall.home / "runs").rglob("*.journal") if p.stat().st_size]
    assert journals
    for path in journals:
        damaged(path, how)
    hall.open()
    office = hall.office()
    status = ended(hall, office, submit(hall, office, resume=True, **changes))
    if status.state == "done":
        assert fetched(office, status, tmp_path / "out") == local(hall, tmp_path / "l", **changes)
    else:
        assert re.search(CLEAR.lower(), status.reason.lower()), status.reason
        assert str(tmp_path) not in status.reason
        done = hall.until(office, submit(hall, office, **changes), "done")
        assert fetched(office, done, tmp_path / "out") == local(hall, tmp_path / "l", **changes)


@pytest.mark.parametrize("how", ["cut", "head", "middle", "empty", "gone"])
def test_a_damaged_store_of_answers_gives_the_known_result_or_a_clear_line(hall, tmp_path, how):
    hall.start()
    held, go = hold(hall, 24)
    office = hall.office()
    first = submit(hall, office, **STATES)
    assert held.wait(60)
    hall.end("south")
    store = hall.kit("south").folder / "state" / "answers.sqlite"
    assert store.stat().st_size > 4096
    damaged(store, how) if how != "gone" else store.unlink()
    try:
        hall.begin("south")
    except InputError as error:
        assert "Move it away" in str(error)
        store.unlink()
        hall.begin("south")
    go.set()
    hall.before = lambda site: None
    status = ended(hall, office, first)
    if status.state != "done":
        assert re.search(CLEAR, status.reason), status.reason
        hall.end("south")
        store.unlink()
        hall.begin("south")
        status = hall.until(office, submit(hall, office, **STATES), "done")
    assert fetched(office, status, tmp_path / "out") == local(hall, tmp_path / "l", **STATES)


def test_a_full_disk_at_the_coordinator_is_told_without_its_folders(hall, tmp_path, monkeypatch):
    def full(self, call, mark, entry):
        raise OSError(28, "No space left on device", str(self._path))

    monkeypatch.setattr(Journal, "append", full)
    hall.start()
    office = hall.office()
    status = ended(hall, office, submit(hall, office))
    assert status.state == "failed"
    assert "the coordinator's out/.work/" in status.reason
    assert "No space left on device" in status.reason
    assert str(tmp_path) not in status.reason
    monkeypatch.undo()
    done = hall.until(office, submit(hall, office, resume=True), "done")
    assert fetched(office, done, tmp_path / "out") == local(hall, tmp_path / "local")


def test_a_run_goes_on_when_a_node_restarts(hall, tmp_path):
    hall.start()
    held, go = hold(hall, 16)
    office = hall.office()
    first = submit(hall, office)
    assert held.wait(60)
    hall.end("south")
    hall.begin("south")
    go.set()
    done = hall.until(office, first, "done")
    assert fetched(office, done, tmp_path / "out") == local(hall, tmp_path / "local")


def test_a_run_that_lost_a_site_fails_and_goes_on_when_it_is_back(hall, tmp_path):
    hall.start()
    held, go = hold(hall, 16)
    office = hall.office()
    first = submit(hall, office, timeout=1.0)
    assert held.wait(60)
    hall.end("south")
    go.set()
    limit = time.monotonic() + 60
    while (status := Status.of(office.ask("status", run=first.run)[1])).open:
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert status.state == "failed", status
    assert "south" in status.reason
    hall.begin("south")
    hall.before = lambda site: None
    done = hall.until(office, submit(hall, office, resume=True), "done")
    assert fetched(office, done, tmp_path / "out") == local(hall, tmp_path / "local")


def test_studies_run_one_after_the_other_in_the_order_of_submission(hall):
    hall.start()
    held, go = hold(hall, 12)
    office, other = hall.office(), hall.office("second")
    first = submit(hall, office)
    assert held.wait(60)
    second = submit(hall, other, who="second", study="other")
    go.set()
    hall.before = lambda site: None
    assert hall.until(other, second, "done").state == "done"
    ended = {r.hash: r for r in runs.all_of(hall.home)}
    assert ended[first.run].ended <= ended[second.run].started


def test_a_site_that_the_kit_does_not_list_is_told_so(hall):
    hall.network.add_site("east")
    kit = hall.network.kit("coordinator") / "kit.toml"
    kit.write_text(kit.read_text().replace('"east", ', ""))
    hall.open()
    with pytest.raises(Refused, match="east is not among the sites") as found:
        hall.office("east").ask("hello")
    assert found.value.code == "unknown site"
    assert any("east" in line for line in hall.said)
    assert hall.office("north").ask("hello")[1]["kind"] == "hello"
    with pytest.raises(Refused, match="sites do not ask"):
        hall.office("north").ask("status", run="0" * 64)


def test_the_record_of_a_run_comes_back_from_disk(ran):
    hall, _, done = ran
    (found,) = runs.all_of(hall.home)
    assert (found.hash, found.state, found.lead) == (done.run, "done", "lead")
    assert (found.folder / "run.json").stat().st_size < 4000


def test_no_message_of_a_failing_coordinator_holds_the_text_of_the_error(ran, monkeypatch):
    _, office, done = ran

    def broken(*_):
        raise RuntimeError("patient 4711")

    monkeypatch.setattr(runs, "files_of", broken)
    with pytest.raises(FedcohortError, match="RuntimeError") as found:
        office.ask("fetch", run=done.run)
    assert "4711" not in str(found.value)


def test_wait_and_timeout_of_the_lead_are_those_of_the_run(hall):
    hall.begin("north")
    hall.open()
    submit(hall, hall.office(), wait=500.0, timeout=7.5)
    (found,) = runs.all_of(hall.home)
    assert (found.wait, found.timeout) == (500.0, 7.5)


def test_a_lead_cannot_ask_for_times_that_are_none(hall):
    hall.open()
    signed = hall.offer().to_bytes().decode()
    for bad in (-1, "soon", True, 1e300, [1]):
        with pytest.raises(Refused, match="number of seconds"):
            hall.office().ask("submit", offer=signed, wait=bad)
    assert runs.all_of(hall.home) == []


@pytest.mark.parametrize("offer", [None, 3, "", "{}", "é", "x" * 100])
def test_a_submission_that_is_no_signed_study_is_refused(hall, offer):
    hall.open()
    with pytest.raises(Refused):
        hall.office().ask("submit", offer=offer)
