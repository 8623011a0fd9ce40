"""What a site's node.toml may say, and which studies it refuses, with which line."""

from decimal import Decimal
from pathlib import Path

import pytest

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Survival
from fedcohort.network.state.policy import Allowance, Asked, Config, Policy
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.study.file.plan import check
from fedcohort.study.file.yamlfile import parse

FULL = """
[data]
source = "exports/patients.csv"
dictionary = "dictionary.yaml"
[policy]
methods = ["cox", "deepcox"]
columns = ["age", "time", "cens"]
min_cell = 7
min_rows = 60
max_parameters = 1_000
secure_sum = "optional"
submitters = ["lead"]
approval = "steward"
[policy.privacy_budget]
epsilon = 3.0
delta = 1e-5
"""
LEAST = '[data]\nsource = "a.csv"\n[policy]\nmethods = "all"\ncolumns = "all"\nsubmitters = "all"\n'

STUDY = """
study: s
data: {source: p.csv, outcome: {time: time, event: cens}, sites: {column: hospital}}
arms:
- {method: cox}
- {method: deepcox, rounds: 3}
privacy: {min_cell: 5}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str) -> Config:
    return Config.read(written(folder, text))


def asked(study: str = STUDY, columns=("age", "size")) -> Asked:
    plan = check(parse(study, "study.yaml"), Path())
    known = Dictionary.from_dict(dict.fromkeys(columns, "number"))
    return Asked.of(plan, known, Survival("time", "cens"))


def test_a_full_configuration_is_read_as_it_stands(tmp_path):
    found = read(tmp_path, FULL)
    assert found.data.source == "exports/patients.csv"
    assert found.data.base == tmp_path
    assert found.policy == Policy(
        methods=("cox", "deepcox"), columns=("age", "time", "cens"), min_cell=7, min_rows=60,
        max_parameters=1000, secure_sum="optional", submitters=("lead",), approval="steward",
        budget=Allowance(Decimal("3.0"), Decimal("1e-05")),
    )  # fmt: skip


def test_what_is_left_out_is_strict(tmp_path):
    policy = read(tmp_path, LEAST).policy
    assert policy.approval == "steward"
    assert (policy.min_cell, policy.min_rows, policy.budget) == (5, 50, None)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("min_cell = 7", "min_cel = 7", r"policy\.min_cel: unknown key 'min_cel'; did you mean 'min_cell'"),
        ("min_cell = 7", "min_cell = 0", r"policy\.min_cell: expected a whole number of at least 1"),
        ("min_cell = 7", "min_cell = true", r"policy\.min_cell: expected a whole number"),
        ("min_cell = 7", 'min_cell = "7"', r"policy\.min_cell: expected a whole number"),
        ('"cox", "deepcox"', '"cocs"', r"policy\.methods: there is no method 'cocs'; did you mean 'cox'"),
        ('methods = ["cox", "deepcox"]', "", r"policy: the key 'methods' is missing"),
        ('columns = ["age", "time", "cens"]', "columns = 1", r'policy\.columns: expected a list of names, or "all"'),
        ('columns = ["age", "time", "cens"]', 'columns = "age"', r'policy\.columns: expected a list of names, or "all"'),
        ('"steward"', '"stuard"', r"policy\.approval: 'stuard' is not possible; did you mean 'steward'"),
        ('"optional"', '"never"', r"policy\.secure_sum: 'never' is not possible"),
        ("epsilon = 3.0", "epsilon = -1.0", r"policy\.privacy_budget\.epsilon: expected a number above 0"),
        ("delta = 1e-5", "delta = 2.0", r"policy\.privacy_budget\.delta: expected a number above 0, at most 1"),
        ("delta = 1e-5", "detla = 1e-5", r"unknown key 'detla'; did you mean 'delta'"),
        ("[data]", "[dat]", r"unknown key 'dat'; did you mean 'data'"),
        ('source = "exports/patients.csv"', "", r"data: the key 'source' is missing"),
        ('source = "exports/patients.csv"', 'source = "a/{site}.csv"', r"data\.source: expected one table of this site"),
        ('source = "exports/patients.csv"', 'source = "sqlite:///a.db"', r"data\.source: a database needs a 'query'"),
        ('source = "exports/patients.csv"', 'source = "postgresql://u:secret@h/d"\nquery = "SELECT 1"', r"data\.source: the URL holds a password"),
        ('source = "exports/patients.csv"', 'source = "sqlite:///a.db"\nquery = "DROP TABLE t"', r"data\.query: expected one SELECT"),
        ("[policy]", "[policy", r"this is no TOML"),
    ],
)  # fmt: skip
def test_an_impossible_configuration_is_refused_by_file_and_key(tmp_path, old, new, said):
    assert old in FULL
    with pytest.raises(InputError, match=said) as error:
        read(tmp_path, FULL.replace(old, new, 1))
    assert str(error.value).startswith(str(tmp_path / "node.toml"))
    assert "secret@" not in str(error.value)


def test_a_missing_configuration_is_named(tmp_path):
    with pytest.raises(InputError, match=r"node\.toml: cannot read the file"):
        Config.read(tmp_path / "node.toml")


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"submitters": ("anna",)}, "submitter", "submitted by 'lead'; this site takes studies of 'anna'"),
        ({"submitters": ()}, "submitter", "takes studies of none"),
        ({"methods": ("cox",)}, "method", "asks for method 'deepcox'; this site allows 'cox'"),
        ({"columns": ("age", "time", "cens")}, "column", "asks for column 'size'; this site allows 'age', 'time', 'cens'"),
        ({"columns": ("age", "size", "time")}, "column", "asks for column 'cens'"),
        ({"min_cell": 10}, "min_cell", "asks for privacy.min_cell 5; this site allows 10 or more"),
    ],
)  # fmt: skip
def test_a_study_beyond_the_policy_is_refused_with_what_it_asks_and_what_is_allowed(
    change, code, said
):
    rules = {"methods": None, "columns": None, "submitters": ("lead",)}
    Policy(**rules).check(asked(), "lead")
    with pytest.raises(Refused) as error:
        Policy(**(rules | change)).check(asked(), "lead")
    assert error.value.code == code
    assert said in str(error.value)
    assert "\n" not in str(error.value)


PRIVACY = "privacy: {min_cell: 5}"


def test_masked_sums_that_a_site_requires_are_refused_where_a_study_switches_them_off():
    rules = {"methods": None, "columns": None, "submitters": ("lead",), "secure_sum": "required"}
    for said in ("auto", "true"):
        Policy(**rules).check(
            asked(STUDY.replace(PRIVACY, f"privacy: {{secure_aggregation: {said}, min_cell: 5}}")),
            "lead",
        )
    with pytest.raises(Refused, match="switches masked sums off") as error:
        Policy(**rules).check(
            asked(STUDY.replace(PRIVACY, "privacy: {secure_aggregation: false, min_cell: 5}")),
            "lead",
        )
    assert error.value.code == "secure_sum"


def test_columns_that_settings_name_count_as_asked():
    study = STUDY.replace("{method: cox}", "{method: cox, strata: region}")
    found = asked(study)
    assert "region" in found.columns
    with pytest.raises(Refused, match="column 'region'"):
        Policy(None, ("age", "size", "time", "cens"), submitters=None).check(found, "lead")


def test_bounds_are_held_to_the_policy_as_arms_are():
    study = STUDY + "bounds: [isolated]\n"
    found = asked(study)
    assert found.methods == ("cox", "deepcox")
    with pytest.raises(Refused, match="method 'cox'"):
        Policy(("deepcox",), None, submitters=None).check(found, "lead")
