"""What of the conformance suite `make test` runs; `make test-all` runs every combination.

`make test` has each test with each method, on its first kind of task and with its defaults, and
with each runtime, some over messages alone. What is left to `make test-all` is the product of all
of them: every kind of task and every setting of `cases.VARIED`, over each engine and with each kind
of kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.cases import FAMILIES, OBJECTIVES, Case, kinds_of

#: What a message may hold: vectors and matrices, networks, rows of text, lists that grow, folds.
OF_EVERY_SHAPE = ("cox", "deepcox", "describe", "kaplan_meier", "kmeans", "svm")

#: Methods whose programs differ by kind of task.
BY_KIND = ("meta_analysis", "personal", "regression_forest")

#: Settings beside the defaults whose programs are others.
OTHERS = {
    ("lasso", (("solver", "admm"),)),
    ("deepcox", (("strategy", "exact"),)),
}

#: Runtimes over which `make test` runs every method; over others, `cox`, or what is named here.
EVERY_METHOD = ("local", "remote", "threads", "local, masked")
ASKED = {
    "test_two_runs_and_all_runtimes_give_the_same_bytes": OF_EVERY_SHAPE,
    "test_masks_change_no_bit_and_the_ledger_says_so": OF_EVERY_SHAPE,
    "test_a_fit_whose_site_was_gone_for_a_call_is_the_local_fit_that_lacked_it_there": (
        OF_EVERY_SHAPE
    ),
}

#: Tests that `make test` runs over messages alone: what they carry goes through the same programs.
BY_MESSAGE = (
    "test_the_order_in_which_sites_are_given_changes_nothing",
    "test_a_run_killed_on_its_way_resumes_to_the_same_end",
)

#: One method for each way in which exact fits use the rules.
RULES = ("cox", "ridge", "logistic")


def core(case: Case) -> bool:
    """Return whether a case is one of those with which `make test` runs every test."""
    first = kinds_of(case.entry)[0]
    for name, known in (("glm", FAMILIES), ("boosting", OBJECTIVES)):
        if case.protects and case.method == name and case.settings:
            here = next(kind for kind in kinds_of(case.entry) if kind in known)
            return here == case.kind and case.settings[0][1] == known[here][0]
    if (case.method, case.settings) in OTHERS:
        return case.kind == first
    return not case.settings and (case.kind == first or case.method in BY_KIND)


def in_make_test(function: str, given: Mapping[str, Any]) -> bool:
    """Return whether `make test` runs a test function with these parameters."""
    case, runtime = given.get("case"), given.get("runtime", "local")
    if case is None:
        return True
    if not core(case):
        return False
    if function in BY_MESSAGE and runtime == "local":
        return False
    if runtime not in EVERY_METHOD and not case.protects:
        methods = ASKED.get(function, ("cox",))
        return case.method in methods and not case.settings and given.get("when") != "first"
    if function == "test_without_one_rule_of_these_its_plant_is_seen":
        return case.method in RULES and not case.settings
    return "share" not in given or given["share"] == 0.4
