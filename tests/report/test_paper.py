import re
import xml.etree.ElementTree as ET

import pytest

from fedcohort.report.run import Run, read
from fedcohort.report.sections import paper
from report import synthetic

LEADING = "Collins GS"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read(synthetic.make(tmp_path_factory.mktemp("run"), scenarios=["iid"], repeats=3))


def parts(run, **change):
    """Return the paragraph and its references."""
    root = ET.fromstring(paper.section(Run({**run.results, **change}, run.folder)).body)
    return root.find("p").text, [li.text for li in root.iter("li")]


COMPARED = [{"arm": "cox", "against": "isolated", "scenario": "iid", "metric": "c_index"}]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"comparisons": COMPARED},
        {"comparisons": COMPARED, "heterogeneity": [], "proportional_hazards": []},
        {"evaluate": {}},
    ],
)
def test_references_are_numbered_in_the_order_of_the_text_and_all_are_cited(run, change):
    text, references = parts(run, **change)
    cited = [int(n) for n in re.findall(r"\[(\d+)\]", text)]
    assert list(dict.fromkeys(cited)) == list(range(1, len(references) + 1))
    assert len(set(references)) == len(references)
    assert references[-1].startswith(LEADING)


@pytest.mark.parametrize(
    ("key", "source"),
    [
        ("heterogeneity", "Riley"),
        ("proportional_hazards", "Grambsch"),
        ("comparisons", "Nadeau"),
    ],
)
def test_a_source_is_cited_if_and_only_if_it_was_used(run, key, source):
    used = {"comparisons": COMPARED} if key == "comparisons" else {}
    assert [r for r in parts(run, **used)[1] if r.startswith(source)]
    assert not [r for r in parts(run, **{key: []})[1] if r.startswith(source)]


def test_metrics_are_cited_as_asked_for(run):
    evaluate = {**run.results["evaluate"], "metrics": ["auc", "log_loss", "brier"]}
    text, references = parts(run, evaluate=evaluate, summary=[])
    cited = re.search(r"by AUC \[(\d)\], log loss and Brier score \[(\d)\], with", text)
    assert [references[int(n) - 1].split()[0] for n in cited.groups()] == ["Hanley", "Brier"]


def test_a_study_of_one_repeat_claims_no_test_between_repeats(run):
    evaluate = {**run.results["evaluate"], "repeats": 1, "draws": 0}
    text, references = parts(run, evaluate=evaluate, comparisons=COMPARED)
    assert "at random once, by C-index" in text
    assert "t-test" not in text
    assert "95 %" not in text
    assert not [r for r in references if r.startswith("Nadeau")]


def test_titles_keep_their_capitals_and_each_arm_its_source(run):
    declared = [
        {"arm": "a", "title": "Cox regression", "method": "cox", "role": "arm", "paper": "P1"},
        {"arm": "b", "title": "logistic", "method": "logistic", "role": "arm", "paper": "P2"},
        {"arm": "c", "title": "AVG", "method": "deepcox", "role": "arm", "paper": "P1"},
        {"arm": "d", "title": "own", "method": "own", "role": "arm"},
    ]
    text, references = parts(run, declared=declared, arms=[])
    expected = "We fitted “Cox regression” (cox [1]), logistic [2], “AVG” (deepcox [1]) and own."
    assert expected in text
    assert references[:2] == ["P1", "P2"]


def test_arms_whose_missing_values_stay_are_named(run):
    declared = [
        {"arm": name, "title": name, "method": name, "role": "arm", "settings": {"impute": how}}
        for name, how in (("cox", "median"), ("boosting", "none"), ("forest", "none"))
    ]
    text, _ = parts(run, declared=declared, preprocess={})
    assert "Missing values were imputed for cox (median), not for boosting and forest." in text
    text, _ = parts(run, declared=declared[:1], preprocess={"impute": "median"})
    assert "Missing values were imputed (median)." in text


def test_a_study_without_coefficients_promises_none(run):
    done = {"arm": run.together[0].name, "status": "done"}
    with_them, _ = parts(run, final=[done | {"coefficients": [{"covariate": "age"}]}])
    assert "The models that are kept, and their coefficients, were fitted" in with_them
    without, _ = parts(run, final=[done], coefficients=[])
    assert "The models that are kept were fitted to all rows" in without


def test_simulated_hospitals_are_called_so_and_natural_ones_are_counted(run):
    assert "divided among 8 simulated hospitals" in parts(run)[0]
    scenarios = [{**run.results["scenarios"][0], "scenario": "natural"}]
    text, _ = parts(run, scenarios=scenarios)
    assert "We analysed 686 patients of 8 hospitals, 299 of whom had the event." in text
    assert "simulated" not in text
