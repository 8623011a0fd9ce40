"""A deployed run over sites in this process: its files, its models, and that it can be stopped."""

from __future__ import annotations

import numpy as np
import pytest

import fedcohort as fc
from deployed_cases import files_of, frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.protocol import SiteUnavailable
from fedcohort.study.file.terms import Terms
from fedcohort.study.results import saved
from fedcohort.study.run.pieces import FINAL, JUDGED
from fedcohort.study.sites.layout import seed_of

ARMS = "[{method: cox}, {method: deepcox, name: fedavg, rounds: 3, hidden: [4]}]"


class Kill(BaseException):
    """A process that ends in the middle."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    terms = terms_of(folder, "gbsg2", ARMS, repeats=2)
    tables = tables_of(terms, frames_of("gbsg2"))
    run_local(terms, tables, folder / "out")
    return terms, tables, folder / "out"


def test_a_run_leaves_the_files_of_a_study_and_nothing_unfinished(whole):
    terms, _, out = whole
    names = set(files_of(out))
    assert {
        "results.json", "metrics.csv", "history.csv", "ledger.jsonl", "study.yaml",
        "dictionary.yaml", "environment.json", "models/cox/model.safetensors",
        "models/cox/model.json", "models/cox/card.md", "models/fedavg/model.safetensors",
    } <= names  # fmt: skip
    assert not any(n.startswith(".work") for n in names)
    found = results_of(out)
    assert {a["status"] for a in found["arms"]} == {"done"}
    sites = ["bergen", "oslo", "tromsø"]
    assert found["network"] == {"hash": terms.hash, "sites": sites, "absent": {}}
    assert [x["arm"] for x in found["left_out"] if "arm" in x] == ["centralised"]
    assert found["missing"] == []
    assert {a["arm"] for a in found["arms"]} == {"isolated", "cox", "fedavg"}
    for metric in ("c_index", "uno_c", "ibs", "calibration_slope", "d_calibration_p"):
        for row in found["arms"]:
            if row["site"] is None:
                assert row["metrics"][metric] is not None, (row["arm"], metric)


def test_the_study_that_a_run_wrote_gives_the_same_study(whole):
    terms, _, out = whole
    assert Terms.of(out / "study.yaml").hash == terms.hash


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("arm", [1, 2])
def test_models_are_those_of_a_fit_over_the_training_rows_and_over_all_rows(whole, arm, final):
    terms, tables, out = whole
    plan = terms.plan
    one = plan.arms[arm]
    frames = {t.site: t.frame if final else t.halves(0).train for t in tables}
    fed = fc.simulate(frames, outcome=terms.outcome, dictionary=terms.dictionary)
    settings = {**one.configured(), **one.preprocess}
    fit = fc.fit(one.method, fed, seed=seed_of(plan, FINAL if final else 0), **settings)
    ours = saved.read(out / "models" / one.name / ("" if final else JUDGED))
    assert ours.notes["trained_on"] == ("all rows" if final else "75% of the rows")
    want = fit.model.arrays()
    assert ours.model.arrays().keys() == want.keys()
    for name, array in ours.model.arrays().items():
        np.testing.assert_array_equal(array, want[name], err_msg=name)
    assert ours.design.to_json() == fit.parts.design.to_json()


def test_two_runs_give_the_same_bytes_but_for_seconds_whatever_the_order(whole, tmp_path):
    terms, _, out = whole
    frames = frames_of("gbsg2")
    shuffled = {
        name: frames[name].sample(frac=1, random_state=i).reset_index(drop=True)
        for i, name in enumerate(reversed(frames))
    }
    run_local(terms, tables_of(terms, shuffled), tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(out)


@pytest.mark.parametrize("after", [1, 60, 200, 230])
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(whole, tmp_path, after):
    terms, tables, out = whole
    calls = [0]

    def tell(event):
        calls[0] += event.call is not None
        if calls[0] == after:
            raise Kill

    with pytest.raises(Kill):
        run_local(terms, tables, tmp_path / "out", tell=tell)
    assert (tmp_path / "out" / ".work").is_dir()
    run_local(terms, tables, tmp_path / "out", resume=True)
    assert files_of(tmp_path / "out") == files_of(out)


def test_a_lost_quorum_ends_the_run_which_goes_on_when_the_site_is_back(whole, tmp_path):
    terms, tables, out = whole
    away = {"now": True}

    def absent(session, call, site):
        return away["now"] and session == "fit-r0000-a02" and call > 8 and site == "oslo"

    with pytest.raises(SiteUnavailable, match="oslo"):
        run_local(terms, tables, tmp_path / "out", absent=absent)
    assert not (tmp_path / "out" / "results.json").exists()
    away["now"] = False
    run_local(terms, tables, tmp_path / "out", absent=absent, resume=True)
    assert files_of(tmp_path / "out") == files_of(out)


def test_a_fit_that_needs_all_its_sites_goes_on_with_the_call_that_lacked_one(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", "[{method: cox}]", quorum=0.5)
    tables = tables_of(terms, frames_of("gbsg2"))
    run_local(terms, tables, tmp_path / "want")
    away, asked = {"now": True}, []

    def absent(session, call, site):
        if session == "fit-r0000-a01" and site == "oslo":
            asked.append(call)
            return away["now"] and call == 9
        return False

    with pytest.raises(SiteUnavailable, match="oslo left"):
        run_local(terms, tables, tmp_path / "out", absent=absent)
    assert asked == list(range(10))
    away["now"] = False
    run_local(terms, tables, tmp_path / "out", absent=absent, resume=True)
    assert asked[:11] == [*range(10), 9]
    assert files_of(tmp_path / "out") == files_of(tmp_path / "want")


def test_where_a_program_cannot_go_on_without_a_site_its_session_begins_anew(tmp_path):
    terms = terms_of(tmp_path, "gbsg2", "[{method: cox}]", quorum=0.5)
    tables = tables_of(terms, frames_of("gbsg2"))
    run_local(terms, tables, tmp_path / "want")
    away = {"now": True}

    def absent(session, call, site):
        return away["now"] and session == "judge-r0000-a01" and call > 9 and site == "oslo"

    with pytest.raises(SiteUnavailable, match="oslo left"):
        run_local(terms, tables, tmp_path / "out", absent=absent)
    away["now"] = False
    run_local(terms, tables, tmp_path / "out", absent=absent, resume=True)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "want")


def test_sites_that_a_quorum_goes_on_without_stand_in_the_results(tmp_path):
    arms = "[{method: deepcox, rounds: 4, hidden: [4]}]"
    terms = terms_of(tmp_path, "gbsg2", arms, quorum=0.5)

    def absent(session, call, site):
        return session == "fit-r0000-a01" and call in (9, 10, 12) and site == "oslo"

    found = run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out", absent=absent)
    head = {"arm": "deepcox", "scenario": "network", "repeat": 0, "phase": "fit", "site": "oslo"}
    assert found["missing"] == [
        {**head, "calls": 2, "first": 9, "last": 10},
        {**head, "calls": 1, "first": 12, "last": 12},
    ]


def test_a_run_is_resumed_for_the_same_study_and_sites_alone(whole, tmp_path):
    terms, tables, _ = whole

    def tell(event):
        raise Kill

    with pytest.raises(Kill):
        run_local(terms, tables, tmp_path / "out", tell=tell)
    with pytest.raises(fc.StudyError, match="its sites"):
        run_local(terms, tables[:2], tmp_path / "out", resume=True)
    other = terms_of(tmp_path, "gbsg2", ARMS, repeats=2, seed=7)
    with pytest.raises(fc.StudyError, match="changed"):
        run_local(other, tables_of(other, frames_of("gbsg2")), tmp_path / "out", resume=True)
