"""A site's policy decides about models of more free parameters than a tenth of its rows."""

import pytest

from hospital import STUDY, Hospital, patients

LARGE = STUDY.replace("method: cox, title: Cox regression", "method: deepcox, hidden: [8, 4]")


@pytest.fixture
def hospital(tmp_path):
    (tmp_path / "data").mkdir()
    patients(80).to_csv(tmp_path / "data" / "patients.csv", index=False)
    made = Hospital(tmp_path, {"min_rows": 20})
    yield made
    made.node.close()


def refusing(made):
    made.policy |= {"parameters_per_row": "refuse"}
    made.restart()
    return made


def test_by_default_the_study_runs_and_the_log_says_so(hospital):
    told = hospital.offered(hospital.signed(hospital.terms(LARGE)))
    assert told["state"] == "approved", told
    assert "crowded" in hospital.log
    assert "parameters=" in hospital.log


def test_a_site_may_refuse_it_in_one_line_that_does_not_tell_its_rows(hospital):
    told = refusing(hospital).offered(hospital.signed(hospital.terms(LARGE)))
    assert (told["state"], told["code"]) == ("refused", "parameters")
    assert "parameters_per_row" in told["reason"]
    assert "\n" not in told["reason"]
    assert "80" not in told["reason"]
    assert "60" not in told["reason"]


def test_a_model_of_few_parameters_passes_there(hospital):
    told = refusing(hospital).offered(hospital.signed(hospital.terms(STUDY)))
    assert told["state"] == "approved", told
    assert "crowded" not in hospital.log
