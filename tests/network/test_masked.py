"""Masked sums over a network: who may switch masks off, and a private fit under masks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcohort.network.coordinator.lead import Status
from fedcohort.network.state.budget import Budget
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.wire import decode
from fedcohort.study.at_site.sessions import is_few
from hospital import request
from network.hall import Hall
from network.parties import SITES

TUNED = {"tune": {"by": "centre-kfold", "grid": {"l2": [0.1, 1.0]}}}
ROWS = {"tune": {"by": "row-kfold", "grid": {"l2": [0.1]}}}
ONE = {"final": True, "evaluate": {"test_fraction": 0.25, "repeats": 1, "draws": 2}}


def finished(hall: Hall, **study: Any) -> Path:
    """Run a study; return the folder of its results."""
    office = hall.office()
    _, meta = office.insist("submit", offer=hall.offer(**study).to_bytes().decode())
    hall.until(office, Status.of(meta), "done")
    return hall.home / "runs" / meta["run"] / "out"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def plain(hall: Hall, run: str, session: str, step: str, asked: int | None) -> dict[str, Any]:
    """Ask the north for its own part of a sum, as a coordinator that has its kit can."""
    node = hall.nodes["north"]
    peer = node._trust.verify(hall.kit("coordinator").certificate.read_bytes())
    body = request(
        run, session=session, step=step, verb="sum", asked=asked, parcel=Parcel.of({})
    )  # fmt: skip
    return decode(node.handle(peer, body))[1]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hall, str, dict[Any, str]]]:
    """A hall whose study is over and approved anew: its run, and a session of each step."""
    with Hall(tmp_path_factory.mktemp("judged")) as hall:
        hall.start()
        run = finished(hall, **ONE, **ROWS).parent.name
        node = hall.nodes["north"]
        blob = hall.offer(**ONE, **ROWS)
        node.handle(
            node._trust.verify(hall.kit("coordinator").certificate.read_bytes()), _offer(blob)
        )
        known = {
            (line["session"].split("-")[0], line["step"]): line["session"]
            for line in lines_of(node.state / "ledger.jsonl")
            if line.get("verb") == "sum"
        }
        yield hall, run, known


@pytest.mark.parametrize("asked", [None, 0, 1, 2])
def test_a_coordinator_that_claims_to_ask_few_sites_gets_no_part_of_a_sum(judged, asked):
    """Whatever it says, the node knows of three sites, and the study leaves none of them out."""
    hall, run, known = judged
    assert {"fit", "judge", "tune", "score"} <= {kind for kind, _ in known}
    for (_, step), session in known.items():
        told = plain(hall, run, session, step, asked)
        assert (told["kind"], told.get("reason")) == ("error", "secure"), (session, step, told)
        assert "unmasked" in told["text"] and "\n" not in told["text"]
    left = lines_of(hall.nodes["north"].state / "ledger.jsonl")
    assert all(line["masked"] for line in left if line.get("verb") == "sum")


def _offer(blob: Any) -> bytes:
    from fedcohort.protocol.wire import encode

    return encode({}, {"kind": "offer", "offer": blob.to_bytes().decode()})


def test_a_study_that_leaves_sites_out_when_it_tunes_has_plain_sums_there_alone(tmp_path):
    with Hall(tmp_path) as hall:
        hall.start()
        finished(hall, **ONE, **TUNED)
        sums = [
            line
            for line in lines_of(hall.nodes["north"].state / "ledger.jsonl")
            if line.get("verb") == "sum"
        ]
        seen = {(line["session"].split("-")[0], line["step"], line["masked"]) for line in sums}
        bare = {(kind, step) for kind, step, masked in seen if not masked}
        assert {kind for kind, _ in bare} == {"tune", "score"}
        assert {step for kind, step in bare if kind == "score"} == {"hold"}
        assert {kind for kind, _, masked in seen if masked} == {
            "describe",
            "fit",
            "final",
            "judge",
            "score",
        }


@pytest.mark.parametrize(
    ("session", "step", "sites", "asked", "fine"),
    [
        ("tune-r0000-a00-n00000", "any", 3, 2, True),
        ("tune-r0000-a00-n00000", "any", 3, 1, False),
        ("tune-r0000-a00-n00000", "any", 3, None, False),
        ("tune-r0000-a00-n00000", "any", 4, 2, False),
        ("score-r0000-a00-n00000", "hold", 9, 1, True),
        ("score-r0000-a00-n00000", "tell_held", 9, 1, False),
        ("fit-r0000-a00", "any", 3, 2, False),
        ("judge-r0000-a00", "any", 3, 1, False),
        ("describe", "any", 3, 2, False),
        ("count", "any", 3, 2, False),
        ("fit-r0000-a00", "any", 2, None, True),
    ],
)
def test_a_site_knows_by_itself_where_few_are_asked(tmp_path, session, step, sites, asked, fine):
    terms = Hall(tmp_path).terms(**ONE, **TUNED)
    assert is_few(terms, session, step, sites, asked) == fine


def test_a_private_fit_under_masks_is_accounted_for_at_both_ends(tmp_path):
    allowed = {"privacy_budget": "{epsilon = 9.0, delta = 0.01}"}
    arms = [{"method": "deepcox", "strategy": "exact", "hidden": [], "rounds": 3}]
    privacy = {"dp": {"epsilon": 3.0, "delta": 1e-4}}
    with Hall(tmp_path, policy=dict.fromkeys(SITES, allowed)) as hall:
        hall.start()
        out = finished(hall, **ONE | {"final": False}, arms=arms, privacy=privacy)  # one fit
        lines = [x for x in lines_of(out / "ledger.jsonl") if x["mechanism"] is not None]
        assert {x["step"] for x in lines} == {"pull_privately", "hazards_privately"}
        assert {x["site"] for x in lines} == set(SITES)
        assert all(x["masked"] and x["delta"] == 1e-4 for x in lines)
        spent = [x["epsilon"] for x in lines if x["site"] == "north"]
        assert spent == sorted(spent) and 2.99 < spent[-1] <= 3.0 + 1e-9
        for name in SITES:
            node = hall.nodes[name]
            path = node.state / "budget.sqlite"
            policy = node.config.policy.budget
            account = Budget(path, node.config.data.name, policy).account()
            assert float(account.spent.epsilon) == pytest.approx(3.0), account
