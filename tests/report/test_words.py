import math

import pytest

from fedcohort.report import words
from fedcohort.report.run import Run


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (words.estimate(0.6841, 0.6712, 0.697), "0.684 (0.671–0.697)"),
        (words.estimate(-0.0104, -0.02, 0.05), "−0.010 (−0.020 to 0.050)"),
        (words.estimate(0.5), "0.500"),
        (words.estimate(None, 1, 2), "– (1.000–2.000)"),
        (words.fixed(-0.0001), "0.000"),
        (words.fixed(math.inf), "–"),
        (words.percent(0.956), "96 %"),
        (words.p_value(0.00004), "< 0.001"),
        (words.p_value(0.0312), "0.031"),
        (words.p_value(0.4567), "0.46"),
        (words.ratio(1.5234), "1.52"),
        (words.ratio(123456.0), "1.2e+05"),
        (words.ratio(0.9996), "0.99960"),
        (words.ratio(1.0000021), "1.0000021"),
        (words.ratio(1.0), "1.00"),
        (words.ratio(0.0031), "0.0031"),
        (words.effect(1.5), "1.500"),
        (words.effect(-0.0123), "−0.0123"),
        (words.effect(-3.21e-6), "−3.21e−06"),
        (words.effect(0.0), "0.000"),
        (words.effect(None), "–"),
        (words.count(12480), "12,480"),
        (words.count(2.5), "2.5"),
        (words.of(1, "reply", "replies"), "1 reply"),
        (words.of(2, "reply", "replies"), "2 replies"),
        (words.size(999), "999 bytes"),
        (words.size(11_216), "11.2 kB"),
        (words.size(3_400_000), "3.4 MB"),
        (words.duration(0.034), "34 ms"),
        (words.duration(9.96), "10 s"),
        (words.duration(184.2), "3 min 4 s"),
        (words.duration(7260), "2 h 1 min"),
        (words.significant(4.6), "4.600"),
        (words.significant(-1500.26), "−1500"),
        (words.listed(["a", "b", "c"]), "a, b and c"),
        (words.value({"a": [1, 2.50, None], "b": True}), "a 1, 2.5, none, b yes"),
    ],
)
def test_numbers_are_printed_as_a_journal_prints_them(shown, expected):
    assert shown == expected


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("AUC", "an AUC"), ("RMSE", "an RMSE"), ("R²", "an R²"), ("C-index", "a C-index"),
        ("Uno's C", "a Uno's C"), ("Brier score", "a Brier score"), ("Accuracy", "an accuracy"),
        ("Mean absolute error", "a mean absolute error"),
    ],
)  # fmt: skip
def test_a_metric_has_the_article_with_which_it_is_spoken(label, said):
    assert words.with_article(label) == said


def test_only_metrics_in_the_outcome_s_unit_have_it_and_four_digits(tmp_path):
    summary = [{"arm": "a", "scenario": "s", "metric": m, "mean": v, "n": 1}
               for m, v in (("rmse", 54.4), ("r2", 0.5))]  # fmt: skip
    run = Run({"outcome": {"unit": "mmHg"}, "summary": summary}, tmp_path)
    assert (run.known("rmse").axis, run.known("rmse").digits) == ("RMSE, mmHg", 2)
    assert (run.known("r2").axis, run.known("r2").digits) == ("R²", 3)
    assert run.known("rmse").sign == run.known("mae").sign == -1
    assert run.known("poisson_deviance").sign == -1
    assert Run({}, tmp_path).known("rmse").axis == "RMSE"
