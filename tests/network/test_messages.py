"""A study in plain words: what it says is what the study asks, and jargon is not in it."""

import re

import pytest

from fedcohort.algorithms.cox import METHOD as COX
from fedcohort.apps.steward import OWN_STEPS
from fedcohort.data import prepare
from fedcohort.network.steward import details as messages
from fedcohort.network.steward.details import _noise as words_of_noise
from fedcohort.protocol import Dp, registry
from fedcohort.study.at_site import asking
from fedcohort.study.file.plan import Plan
from fedcohort.study.file.privacy import Privacy
from hospital import DICTIONARY, OTHERS, STUDY, Hospital, other_task


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    made = Hospital(tmp_path_factory.mktemp("hospital"))
    yield made
    made.node.close()


def told(hospital, study=STUDY, dictionary=DICTIONARY, **options):
    terms = hospital.terms(study, dictionary)
    lines = messages.as_lines(terms, **options)
    assert max(map(len, lines)) <= messages.WIDTH
    return re.sub(r"\s+", " ", " ".join(lines))


def test_it_says_which_outcome_is_predicted(hospital):
    text = told(hospital)
    assert "the time until an event: 'time' in days, and whether it was seen, 'cens'" in text


def test_every_column_is_named_with_what_it_is_used_for(hospital):
    text = told(hospital)
    used, rest = text.split("Only checked, or counted from, in no model:")
    assert "3 columns to predict from: age (age at surgery, years); grade; marker (ng/ml)." in used
    assert {"note", "pid", "seen"} <= set(re.findall(r"\w+", rest.split(".")[0]))
    strata = told(hospital, STUDY.replace("{method: cox,", "{method: cox, strata: grade,"))
    assert "'grade' is used as the strata." in strata
    assert "2 columns to predict from" in strata


def test_each_method_says_what_it_reveals_with_these_settings(hospital):
    plain, exact = told(hospital), told(hospital, STUDY.replace("cox,", "cox, time_grid: exact,"))
    assert COX.reveals_with is not None
    for text, settings in ((plain, {}), (exact, {"time_grid": "exact"})):
        said = COX.reveals_with(COX.configure(settings))
        assert " ".join(said.split()) in text
    assert "The grid 'exact' shows each site's times of death." in exact
    assert "The grid 'exact'" not in plain


def test_the_steps_that_a_site_may_be_asked_are_listed_with_their_fields_and_no_others(hospital):
    text = told(hospital)
    own, _, sums = text.partition("SHOWN FOR YOUR SITE ALONE:")[2].partition("Shown as a sum")
    asked = asking.of_study(hospital.terms().plan, hospital.terms().outcome)
    for step in (*COX.steps, *prepare.STEPS, *OWN_STEPS):
        names = [f.replace("_", " ") for f in step.reply.__dataclass_fields__]
        fields = messages.words.listed(names)
        said = f"- {step.name.replace('_', ' ')} ({fields}):"
        told_as = (step in asked and step.verb == "gather", step in asked and step.verb == "sum")
        assert (said in own, said in sums) == told_as, said
    assert "death times" not in text
    assert "death times" in told(hospital, STUDY.replace("cox,", "cox, time_grid: exact,"))


def test_rounds_are_told_where_they_are_known(hospital):
    study = STUDY.replace(
        "- {method: cox, title: Cox regression}",
        "- {method: deepcox, title: Net, strategy: fedavg, rounds: 7}\n- {method: cox}",
    )
    text = told(hospital, study)
    assert "Net: 7 rounds" in text
    assert "All of it 1 time" in text


def test_bounds_and_judging_are_told(hospital):
    text = told(hospital, STUDY + "bounds: [isolated, centralised]\n")
    assert "it is fitted to your rows alone, here" in text
    assert "25 % of your rows" in text
    assert "judged by C-index" in text


def test_the_stricter_least_cell_counts(hospital):
    assert "from 1 to 4 are not shown" in told(hospital)
    assert "from 1 to 9 are not shown" in told(hospital, min_cell=10)
    assert "from 1 to 4 are not shown" in told(hospital, min_cell=2)


def test_it_is_honest_about_noise_and_about_who_sees_a_reply(hospital):
    text = told(hospital)
    assert "None is added" in text
    assert "a sum over three sites or more leaves masked" in text


@pytest.mark.parametrize(
    "word",
    ["gather", "numpy", "json", "hyperparameter", "callback", "verb", "dataclass", "`", "eqs?[.]",
     "tensor", "dict", "int64", "_"],
)  # fmt: skip
def test_no_word_of_programmers_is_in_what_is_asked_and_revealed(hospital, word):
    """Names of the study's own columns and settings apart, which stand as they are."""
    text = told(hospital, STUDY + "bounds: [isolated]\n").replace("min_cell", "")
    assert not re.search(rf"(?<![a-z]){word}(?![a-z])", text.lower())


@pytest.mark.parametrize("name", OTHERS)
def test_studies_of_other_tasks_are_told_too(hospital, name):
    study, dictionary, said = other_task(name)
    text = told(hospital, study, dictionary)
    assert said in text
    assert "What leaves:" in text


def test_a_list_without_studies_says_so():
    assert messages.summary([]) == ["No study has come to this site."]


def test_a_private_study_says_its_epsilon_and_what_has_no_noise():
    private = Plan.__new__(Plan)
    object.__setattr__(private, "privacy", Privacy(dp=Dp(epsilon=2.0, delta=1e-4)))
    text = words_of_noise(private)
    assert "epsilon 2, delta 0.0001 of each patient in each fit" in text
    assert "Table 1 and how well a model predicts are told without noise" in text


PRIVATE = DICTIONARY.replace("ng/ml}", "ng/ml, usual: [0, 5]}").replace(
    "{type: time, unit: days}", "{type: time, unit: days, usual: [0, 2000]}"
)
#: By strategy: what is protected, what is said of the step that trains, and the step.
NOISY_ARMS = {
    "exact": ("record", "the sum over sites of clipped gradients", "pull privately"),
    "fedavg": ("record", "the sum over sites of their models, each trained on noisy gradients",
               "train privately"),
    "sequential": ("record", "one site's own model as it left it, which the coordinator sees",
                   "leave privately"),
    "fedprox": ("site", "the sum over sites of what training changed, clipped", "move privately"),
}  # fmt: skip


@pytest.mark.parametrize("strategy", NOISY_ARMS)
def test_of_a_private_arm_it_says_what_leaves_with_noise_and_nothing_of_the_fit_without(
    hospital, strategy
):
    unit, said, step = NOISY_ARMS[strategy]
    dp = Dp(epsilon=2.0, delta=1e-4, unit=unit)
    study = STUDY.replace(
        "method: cox, title: Cox regression", f"method: deepcox, strategy: {strategy}, rounds: 7"
    ).replace("min_cell: 5", f"min_cell: 5, dp: {{epsilon: 2.0, delta: 1e-4, unit: {unit}}}")
    text = told(hospital, study, PRIVATE)
    method = registry.find("deepcox")
    config = method.configure({"strategy": strategy, "rounds": 7})
    leaves = text.split("What leaves:")[1].partition(" replies The coordinator")[0]
    assert "noise" in leaves
    assert said in leaves
    assert method.private is not None
    assert f"{method.private.releases(config, dp)[0].replies} times" in leaves
    assert ("deaths and exposures" in leaves) == (unit == "record")
    assert method.reveals_with is not None
    exact = " ".join(method.reveals_with(config).split())
    assert exact not in text
    asked = [w for w in ("pull", "train", "leave", "move") if f"- {w} privately (" in text]
    assert asked == [step.split()[0]]
    assert ("- hazards privately (" in text) == (unit == "record")


def test_every_method_with_a_private_fit_says_what_leaves_in_it(hospital):
    found = [m for m in map(registry.find, registry.names()) if m.private is not None]
    assert {"deepcox", "logistic", "glm", "ridge", "lasso", "elastic_net", "describe"} <= {
        m.name for m in found
    }
    for method in found:
        given = {"glm": {"family": "binomial"}, "boosting": {"objective": "logistic"}}
        given = given.get(method.name, {})
        assert method.private is not None
        assert method.private.reveals is not None, method.name
        text = method.revealed(method.configure(given), Dp(epsilon=2.0, delta=1e-4))
        assert text.startswith("Only replies to which each site has added noise"), method.name
        assert "sum over sites" in text, method.name
        assert text.endswith("."), method.name
        assert text != method.revealed(method.configure(given), None), method.name
