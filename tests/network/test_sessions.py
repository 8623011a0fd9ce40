"""A party killed in a kind of session: a sample of what `make chaos` does with all of them."""

from __future__ import annotations

from network.struck import Scene, Strike, network, strikes

#: Each party, and the sessions that could not be resumed with masks. `test_masked_run.py` has all.
SAMPLE = (
    Strike("node", "preprocessing", 2, True),
    Strike("node", "judging", 1, True),
    Strike("coordinator", "fit", 1, False),
    Strike("lead", "report", 1, True),
)


def test_the_matrix_has_every_party_kind_of_session_and_way():
    known = strikes()
    assert len({strike.name for strike in known}) == 3 * 6 * 2 * 2 == len(known)
    assert {*SAMPLE} < {*known}


def test_a_run_whose_party_was_killed_is_resumed_to_the_result_of_one_process(tmp_path):
    net = network(tmp_path / "n")
    with net:
        for strike in SAMPLE:
            assert "bit-equal" in Scene(net, strike).play(), strike.name
    assert net.survivors == []
