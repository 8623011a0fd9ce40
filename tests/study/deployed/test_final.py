"""The final fit of a deployed study: a session of its own at each site, over all of its rows."""

from __future__ import annotations

import pytest

from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.protocol import DataError, VerbRefused
from fedcohort.protocol.host import Call
from fedcohort.report.run import read
from fedcohort.report.sections.headline import caveats
from fedcohort.report.verdict import leading
from fedcohort.study.at_site import judging
from fedcohort.study.at_site.sessions import Session, open_session
from fedcohort.study.run.pieces import JUDGED

ARMS = "[{method: cox}]"


def test_a_site_opens_it_over_all_rows_where_the_study_has_one_and_else_not(tmp_path):
    terms = terms_of(tmp_path / "a", "gbsg2", ARMS)
    table = tables_of(terms, frames_of("gbsg2"))[0]
    text = Session("final", 0, 1).text
    host = open_session(terms, table, text, 5)
    assert len(host._data) == len(table.frame)
    assert len(open_session(terms, table, Session("fit", 0, 1).text, 5)._data) < len(table.frame)
    for wrong in ("final-r0001-a01", "final-r0000-a00", "final-r0000-a07"):
        with pytest.raises(VerbRefused, match="no session of that name"):
            Session.parse(wrong, terms)
    without = terms_of(tmp_path / "b", "gbsg2", ARMS, final="false")
    assert without.hash != terms.hash
    with pytest.raises(VerbRefused, match="no session of that name"):
        Session.parse(text, without)


def test_it_may_be_asked_what_a_fit_may_and_no_judging(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", ARMS)
    host = open_session(terms, tables_of(terms, frames_of("gbsg2"))[0], "final-r0000-a01", 5)
    judge = next(s for s in judging.STEPS if s.name == "tell_own")
    with pytest.raises(VerbRefused):
        host.answer(Call(0, judge, "gather", None, {}), {"min_cell": 5})


def test_a_run_without_a_final_fit_keeps_the_first_repeats_model(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", ARMS, final="false", bounds="[]")
    run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out")
    assert "final" not in results_of(tmp_path / "out")
    assert not (tmp_path / "out" / "models" / "cox" / JUDGED).exists()


def test_the_horizon_of_a_study_travels_with_it_and_is_that_of_its_calibration(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", ARMS, bounds="[]", final="false")
    content = {**terms.content, "evaluate": {**terms.content["evaluate"], "horizon": "3 years"}}
    asked = type(terms)(content, terms.dictionary_content)
    assert asked.horizon == pytest.approx(3 * 365.25)
    run_local(asked, tables_of(asked, frames_of("gbsg2")), tmp_path / "out")
    found = results_of(tmp_path / "out")
    assert {c["time"] for c in found["calibration"]} == {3 * 365.25}
    assert found["evaluate"]["horizon"] == "3 years"
    bare = dict(terms.dictionary_content)
    bare["variables"] = {
        k: {key: x for key, x in v.items() if key != "unit"} if k == "time" else v
        for k, v in bare["variables"].items()
    }
    with pytest.raises(DataError, match="no unit for the time 'time'"):
        type(terms)(content, bare).check()


def test_the_card_names_a_site_that_was_away_from_the_final_fit(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", ARMS, bounds="[]", quorum=0.5)

    def absent(session, call, site):
        return session.startswith("final") and site == "oslo"

    run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out", absent=absent)
    card = (tmp_path / "out" / "models" / "cox" / "card.md").read_text()
    assert "its sums lack those of oslo, away at the time. How good such a model is" in card


def test_behind_the_follow_up_a_run_shows_nothing_at_its_horizon_and_says_so(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", ARMS, bounds="[]", final="false")
    content = {**terms.content, "evaluate": {**terms.content["evaluate"], "horizon": "30 years"}}
    asked = type(terms)(content, terms.dictionary_content)
    run_local(asked, tables_of(asked, frames_of("gbsg2")), tmp_path / "out")
    found = results_of(tmp_path / "out")
    assert (found["calibration"], found["decision"]) == ([], [])
    run = read(tmp_path / "out")
    said = " ".join(caveats(run, leading(run)))
    assert "its risk by 30 years stays empty, and there are no calibration and no decision" in said


@pytest.mark.parametrize("limit", ["min_rows: 250", "min_events: 250"])
def test_a_site_below_a_limit_is_said_to_be_too_small_and_not_to_have_faults(tmp_path, limit):
    terms = terms_of(tmp_path, "gbsg2", ARMS)
    content = {**terms.content, "data": {**terms.content.get("data", {}), "sites": {}}}
    key, least = limit.split(": ")
    content["data"]["sites"][key] = int(least)
    with pytest.raises(DataError, match="too few rows or events for this study") as said:
        tables_of(type(terms)(content, terms.dictionary_content), frames_of("gbsg2"))
    assert "Correct the table" not in str(said.value)
