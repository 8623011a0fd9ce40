import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from fedcohort.protocol.errors import DataError
from fedcohort.report import write
from report import depth, synthetic

EVIL = "<script>alert('x')</script>\"&]]>--><img src=http://evil.example/x onerror=alert(1)>"


#: Arms and settings of a page, which has every section.
SIZES = {
    "small": (tuple(synthetic.LEVELS), tuple(synthetic.TITLES)[:2]),
    "largest": (synthetic.MANY, tuple(synthetic.TITLES)),
}


@pytest.fixture(scope="module", params=SIZES)
def size(request):
    return SIZES[request.param]


@pytest.fixture(scope="module")
def page(tmp_path_factory, size):
    arms, scenarios = size
    folder = tmp_path_factory.mktemp("run")
    return write(synthetic.make(folder, arms=arms, scenarios=scenarios, repeats=2)).read_text(
        "utf-8"
    )


def tree(text):
    """Return the page's elements; the page is well-formed XML besides its doctype."""
    return ET.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def edited(folder, edit):
    """Change a run's results in place."""
    path = folder / "results.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    return folder


def text_of(node):
    return " ".join("".join(node.itertext()).split())


def test_page_loads_nothing_and_runs_nothing(page):
    root = tree(page)
    tags = {e.tag for e in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "use", "image"}
    for e in root.iter():
        assert not {"src", "srcset", "style", "action"} & set(e.attrib)
        assert not [k for k in e.attrib if k.startswith("on")]
        files = ("data:image/svg+xml;base64,", "data:text/csv;charset=utf-8;base64,")
        assert e.get("href", "#").startswith(files if e.get("download") else "#")
    assert not re.search(r"https?:|url\(|@import", page)
    assert "default-src 'none'" in page


def test_page_is_small_and_every_link_of_its_contents_leads_somewhere(page):
    assert len(page.encode()) < 3_000_000
    assert "it leaves out" not in page
    root = tree(page)
    ids = {e.get("id") for e in root.iter("section")}
    nav = next(root.iter("nav"))
    assert {a.get("href") for a in nav.iter("a")} == {f"#{i}" for i in ids}
    assert ids == {
        "bounds", "sites", "cohort", "discrimination", "centres", "calibration", "decision",
        "accuracy",
        "groups",
        "coefficients", "hazards", "importance", "curves", "left", "protections", "cost",
        "footprint", "tripod", "paper", "settings", "reproduce",
    }  # fmt: skip


def test_no_number_of_the_page_is_nan(page):
    assert not re.search(r"\b(nan|NaN|inf|null)\b", re.sub(r'base64,[^"]*', "", page))


def test_same_folder_gives_the_same_bytes_whatever_the_hash_seed(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], arms=["exact"], repeats=2)
    code = (
        "import sys, pathlib; from fedcohort.report import write; write(pathlib.Path(sys.argv[1]))"
    )
    pages = []
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": "src"}
        subprocess.run([sys.executable, "-c", code, str(folder)], check=True, env=env)
        pages.append((folder / "report.html").read_bytes())
    assert pages[0] == pages[1]


def test_importing_the_report_loads_no_plotting_library():
    code = (
        "import sys, fedcohort.report; "
        "print(sorted({'altair', 'vl_convert', 'torch', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_bounds_picture_has_a_row_for_each_arm_with_its_numbers(page, size):
    arms, scenarios = size
    section = next(s for s in tree(page).iter("section") if s.get("id") == "bounds")
    found = list(section.iter("figure"))
    assert [text_of(f.find("figcaption/h3")) for f in found] == [
        f"{synthetic.TITLES[scenario]}8 hospitals" for scenario in scenarios
    ]
    for figure in found:
        (svg,) = figure.iter("svg")
        texts = [t.text for t in svg.iter("text")]
        assert {title for arm, title, _, _ in synthetic.DECLARED if arm in arms} <= set(texts)
        found = [t for t in texts if re.fullmatch(r"0\.\d{3} \(0\.\d{3}–0\.\d{3}\)", t)]
        assert len(found) == len(arms)


def test_nothing_a_user_wrote_becomes_markup(tmp_path):
    arms = ["isolated", "exact", "cox", "centralised"]
    folder = synthetic.make(
        tmp_path, scenarios=["iid"], arms=arms, repeats=2, n_sites=3, site_name=EVIL
    )

    def spoil(content):
        for key in ("study", "question", "command", "seed", "task"):
            content[key] = EVIL
        for key in ("data", "privacy", "versions", "evaluate", "preprocess", "outcome"):
            content[key] = {**content[key], EVIL: EVIL}
        content["data"].update(description=EVIL, features=[EVIL])
        for arm in content["declared"]:
            arm.update(title=EVIL, reveals=EVIL, settings={EVIL: [EVIL]})
        content["scenarios"][0]["title"] = EVIL
        for row in content["coefficients"]:
            row["covariate"] = EVIL
        content["arms"][-1]["status"] = EVIL
        cohort = content["cohort"]
        cohort["note"] = EVIL
        for v in cohort["variables"]:
            v.update(unit=EVIL, levels=[EVIL] * bool(v["levels"]), counts={EVIL: 9})
        cohort["flow"][0]["stage"] = EVIL
        for v in cohort["variables"][:4]:
            v["name"] = EVIL
        for key in ("importance", "proportional_hazards"):
            for row in content[key]:
                row["feature"] = row["covariate"] = EVIL
        for row in content["risk_groups"]:
            row["groups"][0]["label"] = EVIL
        for row in content["by_centre"]:
            row["note"] = EVIL
        for key in ("over_time", "roc", "calibration"):
            for row in content[key][::2]:
                row["arm"] = EVIL
        content["tuning"][0]["chosen"] = {EVIL: EVIL}

    edited(folder, spoil)
    card = folder / "models" / "exact" / "card.md"
    card.parent.mkdir(parents=True)
    card.write_text(EVIL)
    ledger = folder / "ledger.jsonl"
    wild = json.dumps("</td>" + EVIL)[1:-1]
    ledger.write_text(ledger.read_text().replace("loss_gradient", wild))
    page = write(folder).read_text("utf-8")
    root = tree(page)
    assert not {e.tag for e in root.iter()} & {"script", "img"}
    assert not [k for e in root.iter() for k in e.attrib if k.startswith("on")]
    assert "&lt;script&gt;" in page


def test_what_is_visible_to_the_coordinator_is_flagged(page, size):
    section = next(s for s in tree(page).iter("section") if s.get("id") == "left")
    flagged = [r for r in section.iter("tr") if "visible to the coordinator" in text_of(r)]
    assert len(flagged) == len(size[0]) - 2
    assert all("describe columns" in text_of(r) for r in flagged)


def test_a_failed_arm_is_shown_with_its_reason(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=2, change=depth.NONE)

    def fail(content):
        for row in content["arms"]:
            if row["arm"] == "fedavg":
                row.update(status="failed: site-3 is unavailable", metrics={})
        content["summary"] = [s for s in content["summary"] if s["arm"] != "fedavg"]

    page = write(edited(folder, fail)).read_text("utf-8")
    assert "failed: site-3 is unavailable" in page


def test_values_that_are_missing_leave_dashes_not_errors(tmp_path):
    arms = ["isolated", "cox", "centralised"]
    folder = synthetic.make(tmp_path, scenarios=["iid"], arms=arms, repeats=2)

    def emptied(value):
        if isinstance(value, dict):
            return {k: emptied(v) for k, v in value.items()}
        if isinstance(value, list):
            return [emptied(v) for v in value]
        return None if isinstance(value, float) else value

    def blank(content):
        for row in content["arms"]:
            row["metrics"] = dict.fromkeys(row["metrics"])
            row["seconds"] = row["bytes_up"] = None
        for key in ("summary", "coefficients", "calibration", *depth.NONE):
            content[key] = emptied(content[key])
        for v in content["cohort"]["variables"]:
            v.update(missing=None, counts=dict.fromkeys(v["counts"]))
        for row in content["cohort"]["flow"]:
            row["rows"] = None
        for row in content["proportional_hazards"]:
            row["df"] = None

    page = write(edited(folder, blank)).read_text("utf-8")
    texts = list(tree(page).find("body").itertext())
    assert not [t for t in texts if re.search(r"\b(nan|inf)\b", t) or t == "None"]
    ids = {s.get("id") for s in tree(page).iter("section")}
    assert {"cohort", "groups", "accuracy", "centres", "hazards", "importance", "tripod"} <= ids


@pytest.mark.parametrize(
    ("arms", "absent"),
    [
        (["isolated", "exact", "centralised"], {"coefficients"}),
        (["exact"], {"coefficients", "sites"}),
        (["cox"], {"sites"}),
    ],
)
def test_sections_without_content_are_left_out(tmp_path, arms, absent):
    folder = synthetic.make(
        tmp_path, scenarios=["iid"], arms=arms, repeats=1, n_sites=2, change=depth.NONE
    )
    absent |= {"cohort", "groups", "accuracy", "centres", "hazards", "importance"}
    ids = {s.get("id") for s in tree(write(folder).read_text("utf-8")).iter("section")}
    assert not ids & absent
    assert "bounds" in ids


def test_a_run_with_results_alone_still_gives_a_page(tmp_path):
    (tmp_path / "results.json").write_text('{"schema": 1}')
    assert tree(write(tmp_path).read_text("utf-8")).find("body") is not None


def test_a_figure_stands_for_each_arm_and_setting_that_has_details(page, size):
    root = tree(page)
    found = {s.get("id"): len(s.findall(".//figure")) for s in root.iter("section")}
    n = len(size[0]) - 1  # the isolated arm has none
    assert found["groups"] == found["importance"] == n
    settings = len(size[1])
    assert found["accuracy"] == found["calibration"] == found["decision"] == settings
    assert found["discrimination"] == settings + 1
    titles = {text_of(h) for h in root.findall(".//section[@id='groups']//h3")}
    assert any("Log-rank tests: Patients at random: χ² 19.6 on 2, p < 0.001" in t for t in titles)


def test_thirty_hospitals_with_long_names_fit(tmp_path):
    name = "University Hospital of a Town with a Name that does not End {}"
    folder = synthetic.make(
        tmp_path, scenarios=["iid"], repeats=1, n_sites=30, site_name=name,
        arms=["isolated", "exact", "centralised"],
    )  # fmt: skip
    path = write(folder)
    assert path.stat().st_size < 3_000_000
    root = tree(path.read_text("utf-8"))
    section = next(s for s in root.iter("section") if s.get("id") == "sites")
    said = [d.text for d in section.findall("./div/figure/div/svg/desc")]
    assert [s.count("University Hospital") for s in said] == [30]
    centres = next(s for s in root.iter("section") if s.get("id") == "centres")
    texts = [text_of(t) for t in centres.find("div/figure/div/svg").iter("text")]
    assert sum(t.startswith("University Hospital") for t in texts) == 30
    widest = max(float(s.get("viewBox").split()[2]) for s in section.iter("svg"))
    assert widest == 720


def test_natural_sites_are_judged_on_their_own_patients(tmp_path):
    folder = synthetic.make(
        tmp_path, scenarios=["iid"], arms=["isolated", "exact", "centralised"], repeats=1,
        n_sites=2, change=depth.NONE,
    )  # fmt: skip

    def own(content):
        row = {"arm": "exact", "method": "deepcox", "scenario": "iid", "repeat": 0}
        for i, site in enumerate(("site-1", "site-2")):
            content["arms"].append({**row, "site": site, "metrics": {"c_index_own": 0.7 + 0.1 * i}})
        for r in content["arms"]:
            if r["arm"] == "isolated" and r["site"]:
                r["metrics"]["c_index_own"] = 0.6

    page = write(edited(folder, own)).read_text("utf-8")
    assert "site-2: 0.600 → 0.800" in page
    assert "site-1: 0.600 → 0.700" in page


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "holds no results.json"), ("{", "is not JSON"), ('{"schema": 2}', "schema 2")],
)
def test_a_folder_that_is_no_run_is_refused_in_words(tmp_path, content, words):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(DataError, match=words):
        write(tmp_path)
