"""A site's part in forgetting others: the sums of kept parts that it answers, and its sessions."""

from __future__ import annotations

from itertools import chain, combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.algorithms.bayes_glm.steps import project
from fedcohort.algorithms.bayes_net.steps import multiply_factors, refine
from fedcohort.protocol import Refused, StudyError, VerbRefused
from fedcohort.study.at_site import asking
from fedcohort.study.at_site.forgetting import only_among
from fedcohort.study.at_site.sessions import Session, kept_of
from fedcohort.study.file.terms import Terms

FIVE = ("a", "b", "c", "d", "e")
STUDY = """
study: leaves
task: classification
keep: true
data: {source: t.csv, dictionary: d.yaml, outcome: {y: y}}
arms:
- {method: bayes_logistic}
- {method: bayes_net, hidden: [2], rounds: 4}
- {method: logistic}
evaluate: {test_fraction: 0.4, repeats: 2, draws: 2, metrics: [auc]}
"""
DICTIONARY = "variables:\n  x: {type: number}\n  y: {type: binary}\n"
RECORD = "{site: b, study: s, reason: r, by: steward-b, at: t, signature: '', certificate: ''}"


def terms(folder, text=STUDY, more=""):
    (folder / "d.yaml").write_text(DICTIONARY)
    (folder / "s.yaml").write_text(text + more)
    return Terms.of(folder / "s.yaml")


def forgets(folder, more="", text=STUDY):
    return terms(folder, text, f"forget: {{of: {'a' * 64}, withdrawals: [{RECORD}]{more}}}\n")


def subsets(names):
    return chain.from_iterable(combinations(names, k) for k in range(len(names) + 1))


def answers(members, gone, among, step=multiply_factors):
    """Return whether a site answers a sum over `among` of what it kept."""
    call = SimpleNamespace(step=step, verb=step.verb, among=tuple(among))
    check = only_among(frozenset(members), tuple(gone), lambda call, arguments: None)
    try:
        check(call, {})
    except Refused as error:
        assert error.code == "forget"
        return False
    return True


@given(left=st.sets(st.sampled_from(FIVE), max_size=3), step=st.sampled_from([0, 1, 2]))
def test_no_sums_that_a_site_answers_tell_the_part_of_a_hospital_that_stays(left, step):
    """Sums of factors are linear: what all of them tell is the span of their members' indicators.

    With the old model, the sum over all, and each answered sum for every order in which the
    hospitals of `left` withdraw, no hospital that stays has its own indicator in that span.
    """
    asked = [multiply_factors, refine, project][step]
    known = [frozenset(FIVE)]
    for gone in subsets(sorted(left)):
        known += [frozenset(r) for r in subsets(FIVE) if answers(FIVE, gone, r, asked)]
    told = np.array([[name in members for name in FIVE] for members in known], float)
    assert np.linalg.matrix_rank(told) == 1 + len(left)
    staying = [name for name in FIVE if name not in left]
    for name in staying if len(staying) > 1 else ():
        more = np.vstack([told, [n == name for n in FIVE]])
        assert np.linalg.matrix_rank(more) > np.linalg.matrix_rank(told)


def test_the_sum_without_one_that_stays_would_tell_it():
    """What the rule refuses: two products whose quotient is one hospital's factor."""
    assert answers(FIVE, ["a"], ["b", "c", "d", "e"])
    assert not answers(FIVE, ["a"], ["b", "c", "d"])
    assert not answers(FIVE, ["a"], FIVE)
    assert not answers(FIVE, ["a"], ()), "of masked parts no plain sum is answered"


def test_plain_sums_are_answered_only_where_the_fits_were_plain():
    assert answers((), ["a"], ())


def test_a_study_that_forgets_has_its_fits_and_no_other_session(tmp_path):
    found = forgets(tmp_path)
    for text in ("fit-r0000-a01", "final-r0000-a02", "forget-r0000-a00", "forget-all-r0000-a01"):
        assert Session.parse(text, found).text == text
    for text in (
        "count", "describe", "judge-r0000-a00", "fit-r0001-a00", "forget-r0001-a00",
        "forget-r0000-a02", "forget-r0000-a01-n00001", "rank-r0000-a00", "tune-r0000-a00-n00000",
    ):  # fmt: skip
        with pytest.raises(VerbRefused):
            Session.parse(text, found)
    with pytest.raises(VerbRefused):
        Session.parse("forget-r0000-a00", terms(tmp_path))


def test_one_named_arm_is_the_only_one(tmp_path):
    found = forgets(tmp_path, ", arm: bayes_net")
    assert Session.parse("forget-r0000-a01", found)
    with pytest.raises(VerbRefused):
        Session.parse("forget-r0000-a00", found)


def test_only_forgetting_asks_for_the_product_of_factors(tmp_path):
    assert multiply_factors not in asking.of_study(terms(tmp_path).plan, terms(tmp_path).outcome)
    asked = forgets(tmp_path)
    names = {step.name for step in asking.of_study(asked.plan, asked.outcome)}
    assert "multiply_factors" in names
    assert not names & {"tell_counts", "describe_columns", "tell_own"}


def test_parts_are_kept_of_the_two_models_that_a_study_leaves(tmp_path):
    found, plain = terms(tmp_path), terms(tmp_path, STUDY.replace("keep: true", "keep: false"))
    kept = {t: kept_of(t, found) for t in ("fit-r0000-a01", "final-r0000-a01", "fit-r0000-a00")}
    assert kept == {
        "fit-r0000-a01": "fit-a01", "final-r0000-a01": "final-a01", "fit-r0000-a00": "fit-a00",
    }  # fmt: skip
    for text in ("fit-r0001-a01", "fit-r0000-a02", "judge-r0000-a01", "count", "nonsense"):
        assert kept_of(text, found) == ""
    assert kept_of("fit-r0000-a01", plain) == ""
    assert kept_of("forget-all-r0000-a01", forgets(tmp_path)) == "final-a01"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("keep: true", "keep: perhaps", "expected true or false"),
        (
            "arms:\n- {method: bayes_logistic}\n- {method: bayes_net, hidden: [2], rounds: 4}\n",
            "arms:\n", "no arm leaves parts of its fit at hospitals",
        ),
        ("", "privacy: {dp: {epsilon: 1, delta: 1e-5}}\n", "private fit"),
        ("", f"forget: {{of: abc, withdrawals: [{RECORD}]}}\n", "whole hash, 64 digits"),
        ("", f"forget: {{of: {'a' * 64}, withdrawals: []}}\n", "of signed withdrawals"),
        ("", f"forget: {{of: {'a' * 64}, withdrawals: [{RECORD}, {RECORD}]}}\n", "another site"),
        ("", f"forget: {{of: {'a' * 64}, withdrawals: [{{site: b}}]}}\n", "node withdraw"),
        ("", f"forget: {{of: {'a' * 64}, withdrawals: [{RECORD}], rounds: 0}}\n", "from 1 to"),
        ("", f"forget: {{of: {'a' * 64}, withdrawals: [{RECORD}], arm: other}}\n", "not possible"),
        ("", f"forget: {{off: {'a' * 64}, withdrawals: [{RECORD}]}}\n", "off"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_one_clear_line(tmp_path, old, new, said):
    text = STUDY.replace(old, new) if old else STUDY + new
    if "dp:" in new:
        text = text.replace("- {method: bayes_logistic}\n", "").replace(
            "- {method: logistic}\n", ""
        )
    with pytest.raises(StudyError, match=said) as error:
        terms(tmp_path, text)
    assert "\n" not in str(error.value)


def test_in_one_process_the_key_forget_is_refused(tmp_path):
    from fedcohort.study.file import plan, yamlfile

    text = STUDY + f"forget: {{of: {'a' * 64}, withdrawals: [{RECORD}]}}\n"
    doc = yamlfile.parse(
        text.replace("outcome: {y: y}", "outcome: {y: y}, sites: {column: h}"), "s"
    )
    with pytest.raises(StudyError, match="'fedcohort forget DIR --site X' does this"):
        plan.check(doc, tmp_path)
