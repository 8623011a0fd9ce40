"""An outcome answers for its type."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from fedcohort.algorithms.feedback.words import unrecorded
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Binary, Category, Continuous, Count, Ordered, Survival

DIED = Survival("days", "dead", "entry")
FRAME = pd.DataFrame({"days": [5, 7, 9, 4], "dead": [1, 0, 1, 2], "y": ["no", "yes", "yes", None]})


def test_the_event_stands_for_a_survival_outcome_not_the_time_of_entry():
    assert DIED.label == "dead"
    said = unrecorded("bern", ("age",), DIED, 0, 0.2, 0.1, 0.3)
    assert "model of dead from" in str(said)


def test_columns_have_the_type_that_their_role_asks_for():
    assert [DIED.type_of(c) for c in (*DIED.columns, "age")] == ["time", "event", "number", ""]
    assert Binary("y").type_of("y") == ""
    assert Count("n").roles == {"n": "count"}


def test_rows_without_a_known_event_are_told_apart_from_those_without_one():
    assert_array_equal(DIED.events(FRAME), [1, 0, 1, np.nan])
    assert_array_equal(Binary("y").events(FRAME), [0, 1, 1, np.nan])
    assert Continuous("days").events(FRAME) is None


@pytest.mark.parametrize(
    ("outcome", "fewest"), [(Binary("y"), 1), (Category("y"), 1), (Continuous("days"), 4)]
)
def test_coefficients_are_weighed_against_the_rarest_class_or_the_rows_with_a_value(
    outcome, fewest
):
    assert outcome.fewest(FRAME) == fewest


@pytest.mark.parametrize(
    "outcome", [Survival("time", "event"), Category("y"), Ordered("y"), Count("y")]
)
def test_a_study_file_that_has_the_outcome_as_it_tells_itself_gives_it_back(outcome):
    told = dict(outcome.to_dict())
    told.pop("type", None)
    assert type(outcome)(**told) == outcome


def test_ordered_classes_keep_the_order_of_the_dictionary_and_others_are_sorted():
    written = ("mild", "severe", "fatal")
    known = Dictionary.from_dict({"y": {"type": "category", "levels": list(written)}})
    frame = pd.DataFrame({"y": ["fatal", "mild", "severe"]})
    assert Ordered("y").levels(known) == written
    assert Category("y").levels(known) == ("fatal", "mild", "severe")
    assert_array_equal(Ordered("y").values(frame, written), [2, 0, 1])
    assert (Ordered.kind, Ordered.type) == ("classification", "ordinal")


def test_the_unit_of_time_is_that_of_the_dictionary_and_of_survival_alone():
    known = Dictionary.from_dict({"days": {"type": "number", "unit": "days"}})
    assert DIED.time_unit(known) == "days"
    assert Continuous("days").time_unit(known) == ""
