import pytest
from numpy.testing import assert_allclose

from fedcohort.report.run import Arm
from fedcohort.report.sections.training import _falling, read


def test_curve_is_mean_and_spread_over_repeats_of_the_mean_over_sites(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text(
        "arm,scenario,repeat,site,round,name,value\n"
        "a,iid,0,x,0,loss,1\na,iid,0,y,0,loss,3\n"  # repeat 0: mean 2
        "a,iid,1,,0,loss,6\n"  # repeat 1: 6
        "a,iid,1,,1,loss,4\n"  # repeat 0 has stopped and keeps its 2
        "a,iid,1,,2,loss,nan\n"
    )
    curve = read(path)["a", "iid", "loss"]
    assert_allclose(curve, [(0, 4, 8**0.5), (1, 3, 2**0.5)], rtol=1e-12)


def test_no_history_is_no_curve(tmp_path):
    assert read(tmp_path / "history.csv") == {}


@pytest.mark.parametrize(
    ("values", "told"),
    [((-9.0, -7.0, -7.5, -6.0), True), ((-9.0, -7.0, -7.0 - 1e-8, -6.0), False)],
)
def test_a_log_likelihood_that_falls_is_explained_and_rounding_is_no_fall(values, told):
    arm = Arm("a", "multi-view PPCA", "multiview_ppca", "arm", {}, "", "c0", {})
    curve = [(float(r), v, 0.0) for r, v in enumerate(values)]
    said = _falling([(arm, "log_likelihood", {"natural": curve})])
    assert ("multi-view PPCA falls in some rounds" in said) == told
    assert _falling([(arm, "loss", {"natural": curve})]) == ""
