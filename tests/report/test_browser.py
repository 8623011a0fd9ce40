import re

import pytest

from fedcohort.report import comparing, write
from fedcohort.report.comparison import Comparison
from report import depth, grouped, synthetic
from report.browser import PROGRAM, Browser

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on the PATH")

NAME = "University Hospital of a Town with a Name that does not End {}"
#: The smallest text of all pictures, in pixels of the screen.
SMALLEST = """Math.min(...[...document.querySelectorAll("svg text")]
    .filter(e => e.getBoundingClientRect().height)
    .map(e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a))"""
#: Names of what sticks out of the page, where nothing lets it scroll on its own.
WIDEST = """[...document.querySelectorAll("main *")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, svg"))
    .map(e => e.tagName + "." + e.className)"""


def wide_cohort(sites):
    """Return a cohort of 200 columns with long names and levels."""
    long = "a_measurement_with_a_name_that_nobody_would_like_to_type_{}"
    return depth.cohort(
        sites,
        [
            (long.format(i), *kind)
            for i in range(100)
            for kind in (("number", "mmol/l", ()), ("category", "", ("no", NAME)))
        ],
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    sites = [NAME.format(i + 1) for i in range(8)]
    folder = synthetic.make(
        tmp_path_factory.mktemp("run"), scenarios=["iid", "by-outcome"], repeats=2,
        arms=["isolated", "fedavg", "cox", "centralised"], site_name=NAME,
        change={"cohort": wide_cohort(sites)},
    )  # fmt: skip
    return write(folder)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A page of three runs in folders with long names."""
    base = tmp_path_factory.mktemp("runs")
    folders = [base / f"a run with a name as long as some people make them, {i}" for i in "abc"]
    for folder in folders:
        synthetic.make(folder, scenarios=["iid"], repeats=2, change=depth.NONE)
        (folder / "study.yaml").write_text(f"data: {{source: '{folder.name * 3}'}}")
    return comparing.write(Comparison.of(folders), base / "compare.html")


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """A page of clusters, at hospitals with long names."""
    folder = grouped.make(tmp_path_factory.mktemp("groups"), site_name=NAME)
    return write(folder)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("which", ["page", "compared", "groups"])
def test_page_fits_every_width_and_the_console_stays_silent(browser, request, which, width):
    browser.open(request.getfixturevalue(which), width)
    browser.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(WIDEST) == []
    assert browser.evaluate(SMALLEST) >= 11
    assert browser.complaints() == []


def test_every_link_of_a_figure_saves_its_file(browser, page, tmp_path):
    browser.open(page, 1440)
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for kind in ("svg", "csv"):
        browser.evaluate(
            f"document.querySelector('#figure-bounds-iid a[download$={kind}]').click()"
        )
        while browser.wait("Page.downloadProgress")["state"] != "completed":
            pass
    assert (tmp_path / "bounds-iid.svg").read_text().startswith("<svg xmlns=")
    assert (tmp_path / "bounds-iid.csv").read_text("utf-8-sig").startswith("scenario,arm,")
    browser.open(tmp_path / "bounds-iid.svg", 800)
    assert browser.evaluate("document.documentElement.tagName") == "svg"
    assert browser.complaints() == []


def test_dark_and_light_pages_differ_in_colours_only(browser, page):
    looks = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.call("Emulation.setEmulatedMedia", features=[feature])
        browser.open(page, 1440)
        mark = 'document.querySelector(".figure svg [fill=\\"var(--c0)\\"]")'
        looks.append(
            [
                browser.evaluate(f"getComputedStyle({x}).{k}")
                for x, k in (("document.body", "backgroundColor"), (mark, "fill"))
            ]
            + [browser.evaluate("document.documentElement.scrollHeight")]
        )
    browser.call("Emulation.setEmulatedMedia", features=[])
    (paper, ink, height), (dark_paper, dark_ink, dark_height) = looks
    assert (paper, ink) == ("rgb(255, 255, 255)", "rgb(0, 104, 179)")
    assert (dark_paper, dark_ink) == ("rgb(18, 22, 28)", "rgb(88, 174, 240)")
    assert height == dark_height


def test_page_prints_to_a4_with_whole_figures_and_no_links_to_files(browser, page):
    browser.open(page, 1440)
    printed = browser.pdf()
    boxes = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", printed)
    assert len(boxes) >= 5
    for width, height in boxes:  # A4 in points
        assert float(width) == pytest.approx(595.3, abs=1)
        assert float(height) == pytest.approx(841.9, abs=1)
    browser.call("Emulation.setEmulatedMedia", media="print")
    size = {"width": 688, "height": 998, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)  # what lies within the margins
    heights = "[...document.querySelectorAll('figure')].map(e => e.getBoundingClientRect().height)"
    found = browser.evaluate(heights)
    hidden = "[...document.querySelectorAll('.gets')].every(e => !e.getBoundingClientRect().height)"
    unseen = browser.evaluate(hidden)
    browser.call("Emulation.setEmulatedMedia", media="")
    assert unseen
    assert max(found) < 998
