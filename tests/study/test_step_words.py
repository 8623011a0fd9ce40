import re

import pytest

from fedcohort.data import describe, prepare
from fedcohort.protocol import registry
from fedcohort.study.results.step_words import plain_words, step_words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Sum covariates about their centre c (p,).", "Sum covariates about their centre."),
        ("Count between edges of time (1, m).", "Count between edges of time."),
        ("Sum what is (n, p + 1) expected, eq. (3).", "Sum what is expected."),
        ("Sum from `centre`, eqs. (1) and (2).", "Sum from centre."),
        ("Sum squares about `centre` (q,), with weights `w` (k, q).", "Sum squares."),
        ('Count rows (of patients) by "age".', 'Count rows (of patients) by "age".'),
    ],
)
def test_notes_on_the_code_are_taken_out_and_nothing_else(line, expected):
    assert plain_words(line) == expected


def test_no_step_is_described_by_a_shape_an_equation_or_a_backtick():
    own = [s for name in ("cox", "deepcox", "logistic") for s in registry.find(name).steps]
    for words in step_words((*prepare.STEPS, *describe.STEPS, *own)).values():
        assert words
        assert not {"`", "(", "eq."} & {*words, *words.split()}


def test_no_step_of_any_method_speaks_in_names_of_code_or_breaks_off():
    steps = [s for name in registry.names() for s in registry.find(name).steps]
    for name, said in step_words((*prepare.STEPS, *steps)).items():
        assert said.endswith("."), name
        assert "_" not in said, name
        assert not {*"αβγθλμρτ"} & {*said}, name
        assert not re.search(r"\b(at|of|about|common)[.,]", said), name
        assert "centre," not in said, name
