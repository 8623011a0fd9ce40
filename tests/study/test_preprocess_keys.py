"""The keys of `preprocess`: checked with the study, passed to the fit, kept with the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedcohort as fc
from fedcohort.data.read import sources
from fedcohort.protocol import SettingError, StudyError
from fedcohort.study.file import plan, yamlfile

STUDY = """\
study: small
data:
  source: sample:gbsg2
  outcome: {time: time, event: cens}
  sites: {split: iid, n: 4}
preprocess: PREPROCESS
arms:
  - {method: cox ARM}
bounds: [isolated, centralised]
"""


def check(preprocess="{}", arm=""):
    text = STUDY.replace("PREPROCESS", preprocess).replace(" ARM", arm)
    return plan.check(yamlfile.parse(text, "s.yaml"), Path())


@pytest.mark.parametrize(
    ("preprocess", "said"),
    [
        ("{scale: quantil}", "preprocess.scale: 'quantil' is not possible; did you mean "
         "'quantile'?"),
        ("{impute: iterativ}", "preprocess.impute: 'iterativ' is not possible; did you mean "
         "'iterative'?"),
        ("{winsorise: 0.5}", "preprocess.winsorise: expected the share of rows to cut at each "
         "tail, from 0 to 0.25."),
        ("{winsorise: yes}", "preprocess.winsorise: expected the share of rows to cut at each "
         "tail, from 0 to 0.25."),
        ("{pool_levels: few}", "preprocess.pool_levels: expected a whole number of rows, from 0; "
         "rarer levels become one."),
        ("{winsorize: 0.01}", "preprocess.winsorize: unknown key 'winsorize'; did you mean "
         "'winsorise'?"),
        ("[median]", "preprocess: expected a mapping with keys scale, impute, imputer, "
         "imputations, winsorise, pool_levels."),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_place(preprocess, said):
    with pytest.raises(StudyError) as error:
        check(preprocess)
    assert str(error.value) == f"s.yaml, line 6, {said}"


def test_an_arm_has_the_study_s_values_unless_it_has_its_own_and_bounds_inherit_them():
    found = check("{impute: iterative, winsorise: 0}", ", winsorise: 0.02, pool_levels: 10")
    for arm in found.arms:
        assert arm.preprocess == {
            "scale": "none",
            "impute": "iterative",
            "winsorise": 0.02,
            "pool_levels": 10,
        }
        assert "winsorise" not in arm.settings
    with pytest.raises(StudyError) as error:
        check("{}", ", pool_levels: 1.5")
    assert "s.yaml, line 8, arms.0.pool_levels: expected a whole number" in str(error.value)
    assert check("{}", ", winsorise: null").arms[1].preprocess == {
        "scale": "none",
        "impute": "median",
    }


def test_a_notebook_s_values_reach_the_design_and_are_saved_with_the_model(tmp_path):
    source = sources.load("sample:gbsg2", Path())
    fed = fc.simulate(
        source.frames.assign(site=np.arange(686) % 2),
        sites="site",
        outcome=source.outcome,
        dictionary=source.dictionary.to_dict(),
    )
    wanted = {"scale": "quantile", "impute": "iterative", "winsorise": 0.05, "pool_levels": 90}
    fit = fc.fit("cox", fed, **wanted)
    fit.save(tmp_path)
    design = fc.load(tmp_path).parts.design
    assert {k: getattr(design, k) for k in wanted} == wanted
    assert "tgrade=other" in design.features
    for name, value, said in (
        ("winsorise", 0.3, "winsorise is 0.3; expected the share of rows"),
        ("pool_levels", "x", "pool_levels is 'x'; expected a whole number"),
        ("impute", "mode", "impute is 'mode'; "),
    ):
        with pytest.raises(SettingError) as error:
            fc.fit("cox", fed, **{name: value})
        assert said in str(error.value)
