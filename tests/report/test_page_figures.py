"""Who draws a figure changes nothing: the page's process, the second one, or both."""

import re

import pytest

from fedcohort.report import charts, helper, page
from fedcohort.report.charts import figures, page_figures, render
from fedcohort.report.run import read
from report import synthetic

ROWS = [charts.Row(name=n, value=v, low=v - 0.1, high=v + 0.1) for n, v in (("a", 0.4), ("b", 0.6))]


class Recorded:
    """A helper that draws here, ends after some drawings, and tells how many it made."""

    def __init__(self, most: int):
        self.there, self.most, self.made, self.killed = True, most, 0, False

    def svg(self, spec: str) -> str | None:
        if self.made == self.most:
            self.there = False
            return None
        self.made += 1
        return render.vega.svg(spec, helper.VEGA_LITE)

    def kill(self) -> None:
        self.killed = True


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch):
    monkeypatch.setattr(render, "_kept", {})


def figure(key: str, title: str = "title"):
    return figures.figure(key, title, "note", charts.bars(ROWS, key), [{"a": 1}], "said")


@pytest.mark.parametrize("most", [0, 1, 100])
def test_figures_are_those_drawn_in_one_process_also_when_the_helper_ends_early(most):
    alone = [figure(k) for k in ("one", "two")]
    render._kept.clear()
    with page_figures.together(Recorded(most)):
        places = [figure(k) for k in ("one", "two")]
        assert all(re.fullmatch(r"<!--figure \d-->", p) for p in places)
        assert page_figures.current().completed("|".join(places)) == "|".join(alone)
    assert page_figures.current() is None


def test_a_users_text_holds_no_place():
    with page_figures.together(Recorded(0)):
        first = figure("one", title="<!--figure 0-->")
        done = page_figures.current().completed(first)
    assert done.count("<figure") == 1
    assert "<!--figure" not in done


def test_after_an_error_nothing_more_is_drawn():
    one = Recorded(100)
    with pytest.raises(ZeroDivisionError), page_figures.together(one):
        raise ZeroDivisionError
    assert one.made == 0


def test_a_chart_that_cannot_be_drawn_fails_here_as_without_a_helper():
    with page_figures.together(Recorded(0)):
        page_figures.current().place(['{"mark": "no such mark"}'], lambda: charts.slug("x"))
        with pytest.raises(ValueError, match="Vega-Lite to SVG conversion failed"):
            page_figures.current().completed("")


def test_the_second_process_draws_the_same_and_once_it_has_ended_nothing():
    spec = render.specified(charts.bars(ROWS, "drop"))
    one = helper.Helper(cores=2)
    try:
        assert one.svg(spec) == render.vega.svg(spec, helper.VEGA_LITE)
        one.kill()
        assert one.svg(spec) is None
        assert not one.there
    finally:
        one.close()


def test_one_core_has_no_second_process():
    assert not helper.Helper(cores=1).there


def test_without_an_interpreter_to_start_this_process_draws(monkeypatch):
    monkeypatch.setattr(helper.sys, "executable", "/nowhere/python")
    assert not helper.Helper(cores=2).there


def test_a_page_has_the_same_bytes_with_a_helper_that_ends_in_the_middle(tmp_path):
    run = read(synthetic.make(tmp_path, scenarios=["iid"], arms=["exact"], repeats=2))
    alone = page.render(run)
    render._kept.clear()
    assert page.render(run, Recorded(3)) == alone
