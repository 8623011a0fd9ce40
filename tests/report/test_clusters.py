import csv
import io
import json
import re
import urllib.request
import xml.etree.ElementTree as ET

import pytest

from fedcohort.report import comparing, summary_table, words, write
from fedcohort.report.comparison import Comparison
from fedcohort.report.run import read
from fedcohort.report.sections import bounds, cluster_features, cluster_map, clusters, hospitals
from fedcohort.report.verdict import answer, leading
from report import grouped

EVIL = "<script>alert('x')</script>\"&]]>--><img src=http://evil.example/x onerror=alert(1)>"
SECTIONS = {
    "clusters", "cluster-features", "cluster-survival", "cluster-map", "cluster-images"
}  # fmt: skip


def edited(folder, edit):
    """Change a run's results in place, and return the run."""
    path = folder / "results.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    return read(folder)


def text(section):
    """Return a section's words, those of its tables and of its pictures."""
    root = ET.fromstring(f"<div>{section.body}</div>")
    return " ".join(t.strip() for t in (section.intro, *root.itertext()) if t.strip())


def rows(section, nth=0):
    """Return the cells of one of a section's tables, its head first."""
    table = list(ET.fromstring(f"<div>{section.body}</div>").iter("table"))[nth]
    return [[" ".join("".join(c.itertext()).split()) for c in row] for row in table.iter("tr")]


def descriptions(section):
    root = ET.fromstring(f"<div>{section.body}</div>")
    return [d.text for d in root.iter("desc")]


def downloads(section):
    """Return the data of a section's pictures, each with its head first."""
    links = [a.get("href") for a in ET.fromstring(f"<div>{section.body}</div>").iter("a")
             if a.get("download", "").endswith(".csv")]  # fmt: skip
    found = (urllib.request.urlopen(link).read().decode("utf-8-sig") for link in links)
    return [list(csv.reader(io.StringIO(text))) for text in found]


# the answer -------------------------------------------------------------------------------


def test_headline_says_how_many_groups_whether_the_same_and_whether_they_differ(tmp_path):
    assert answer(read(grouped.make(tmp_path))) == (
        "Six groups of patients, found at 10 hospitals; the same (adjusted Rand 0.93) as one table "
        "would give; they differ in survival (log-rank p < 0.001) though survival was not used."
    )


def test_groups_that_do_not_differ_in_survival_are_said_not_to(tmp_path):
    said = answer(read(grouped.make(tmp_path, p=0.31)))
    assert said.endswith("they do not clearly differ in survival (log-rank p = 0.31).")


def test_a_difference_in_some_repeats_is_claimed_of_those_alone(tmp_path):
    def change(content):
        for row in content["arms"]:
            row["metrics"]["log_rank_p"] = 0.01 if row["repeat"] == 0 else 0.4

    run = edited(grouped.make(tmp_path), change)
    assert "they differ in survival in 1 of 3 fits (log-rank p < 0.05)" in answer(run)


# Kaufman & Rousseeuw, Finding Groups in Data (1990), ch. 2: 0.71-1.00 strong, 0.51-0.70
# reasonable, 0.26-0.50 weak and could be artificial, 0.25 and less no substantial structure
@pytest.mark.parametrize(
    ("silhouette", "said"),
    [
        (0.71, "a strong structure."), (0.70, "a reasonable structure."),
        (0.51, "a reasonable structure."), (0.50, "a weak structure, which could be artificial."),
        (0.26, "a weak structure, which could be artificial."),
        (0.25, "no substantial structure: the groups are parts of one cloud rather than clouds."),
        (-0.1, "no substantial structure: the groups are parts of one cloud rather than clouds."),
    ],
)  # fmt: skip
def test_how_far_groups_are_apart_is_said_after_kaufman_and_rousseeuw(tmp_path, silhouette, said):
    def change(content):
        for row in content["summary"]:
            if row["metric"] == "silhouette" and row["arm"] == "deep":
                row["mean"] = silhouette

    section = clusters.clusters(edited(grouped.make(tmp_path, k=2), change))
    value = f"{silhouette:.2f}".replace("-", "−")
    assert f"Their silhouette is {value}, by Kaufman and Rousseeuw (1990) {said}" in text(section)


def test_without_a_silhouette_nothing_is_said_of_structure(tmp_path):
    section = clusters.clusters(read(grouped.make(tmp_path, k=1)))
    assert "Rousseeuw" not in text(section)


# Steinley, Psychol. Methods 9 (2004): 0.90 excellent, 0.80 good, 0.65 moderate
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.90, "; the same ("),
        (0.89, "; much the same ("),
        (0.80, "; much the same ("),
        (0.79, "; partly the same ("),
        (0.65, "; partly the same ("),
        (0.64, "; not the same ("),
        (-0.02, "; not the same (adjusted Rand −0.02)"),
    ],
)
def test_agreement_has_the_words_of_its_level(tmp_path, value, said):
    def change(content):
        for row in content["summary"]:
            if (row["arm"], row["metric"]) == ("deep", "agreement"):
                row["mean"] = value

    assert said in answer(edited(grouped.make(tmp_path), change))


def test_without_an_outcome_the_silhouette_ends_the_headline(tmp_path):
    run = read(grouped.make(tmp_path, outcome="none"))
    level = run.summary("deep", "natural", "silhouette").mean
    assert answer(run).endswith(f"as one table would give; silhouette {level:.3f}.")
    page = write(tmp_path).read_text("utf-8")
    ids = {s.get("id") for s in ET.fromstring(page.partition("\n")[2]).iter("section")}
    assert ids & {"cluster-survival", "cluster-classes", "discrimination", "tripod"} == set()
    assert SECTIONS - {"cluster-survival"} <= ids


def test_with_classes_the_headline_says_how_many_patients_are_in_theirs(tmp_path):
    run = read(grouped.make(tmp_path, outcome="classification"))
    assert answer(run).endswith(
        "they are the known classes for 85 % of patients (adjusted Rand 0.70) though none was used."
    )


@pytest.mark.parametrize("outcome", ["survival", "none"])
def test_one_cluster_is_one_group_and_gives_a_page(tmp_path, outcome):
    folder = grouped.make(tmp_path, k=1, outcome=outcome)
    run = read(folder)
    assert run.summary("deep", "natural", "silhouette") is None
    assert answer(run) == (
        "One group of patients, found at 10 hospitals; the same (adjusted Rand 0.93) as one table "
        "would give."
    )
    assert cluster_features.section(run) is None
    page = write(folder).read_text("utf-8")
    assert ("none, since there is one group only" in page) == (outcome == "survival")
    assert not re.search(r"\b(nan|NaN|inf|null)\b", re.sub(r'base64,[^"]*', "", page))


def test_the_leading_arm_is_the_one_nearest_to_pooled_data(tmp_path):
    def change(content):
        other = [
            {**s, "arm": "tight", "mean": 0.6 if s["metric"] == "silhouette" else 0.5}
            for s in content["summary"] if s["arm"] == "deep"
        ]  # fmt: skip
        content["summary"] += other
        content["declared"].append({"arm": "tight", "title": "Tight", "role": "arm"})

    assert leading(edited(grouped.make(tmp_path), change)).name == "deep"


def test_a_run_that_failed_says_so(tmp_path):
    def change(content):
        for row in content["arms"]:
            row.update(status="failed: too few rows", metrics={})
        for key in content:
            if key.startswith("cluster") or key == "summary":
                content[key] = []

    folder = grouped.make(tmp_path)
    run = edited(folder, change)
    assert answer(run).startswith("No way of training together finished")
    assert "too few rows" in write(folder).read_text("utf-8")


# its sections -----------------------------------------------------------------------------


def test_every_cluster_has_its_size_in_all_and_at_each_hospital(tmp_path):
    run = read(grouped.make(tmp_path, k=2, n_sites=3))
    table = rows(clusters.clusters(run))
    own = [r for r in run.rows("clusters") if r["arm"] == "deep"]
    at = {(r["site"], r["cluster"]): r["n"] for r in run.rows("cluster_sites")}
    assert table[0] == ["", "Cluster 0", "Cluster 1"]
    assert table[1] == [
        "All hospitals", *(f"{r['n']} ({100 * r['share']:.0f} %)" for r in own)
    ]  # fmt: skip
    assert table[2:] == [
        [s, str(at[s, 0]), str(at[s, 1])] for s in ("hospital-1", "hospital-2", "hospital-3")
    ]


def test_agreement_stands_with_its_interval_and_its_range_over_repeats(tmp_path):
    def change(content):
        for row in content["arms"]:
            if row["arm"] == "deep":
                row["metrics"]["agreement"] = 0.9 + 0.02 * row["repeat"]
        for row in content["summary"]:
            if row["metric"] == "agreement":
                row |= {"low": 0.85, "high": 0.98} if row["arm"] == "deep" else {"low": None}

    run = edited(grouped.make(tmp_path), change)
    said = descriptions(clusters.clusters(run))[0]
    assert said == (
        "Each hospital alone: 0.41, not the same groups; Federated deep clustering: 0.93 "
        "(0.85–0.98), the same groups."
    )
    note = text(clusters.clusters(run))
    assert "95 % intervals over patients; mean over repeats" in note


def test_small_cells_are_hidden_and_it_is_said_why(tmp_path):
    def change(content):
        content["cluster_sites"][0]["n"] = None
        content["clusters"][1].update(n=None, share=None)

    run = edited(grouped.make(tmp_path, k=2, n_sites=2), change)
    section = clusters.clusters(run)
    assert rows(section)[1][2] == "hidden"
    assert rows(section)[2][1] == "hidden"
    assert "“hidden” is of fewer than 5 patients, or would tell of so few" in text(section)
    assert "training patients in the first repeat" not in write(tmp_path).read_text("utf-8")


def test_nothing_is_said_of_hidden_cells_where_there_are_none(tmp_path):
    section = clusters.clusters(read(grouped.make(tmp_path)))
    assert "hidden" not in text(section)


def test_features_have_odds_ratios_with_intervals_and_q_values(tmp_path):
    def change(content):
        content["cluster_features"][0] |= {
            "share": 0.5288, "rest": 0.241, "odds_ratio": 3.516, "low": 2.413, "high": 5.124,
            "p": 3.5e-11, "q": 0.02,
        }  # fmt: skip

    run = edited(grouped.make(tmp_path, k=3, features=5), change)
    section = cluster_features.section(run)
    table = rows(section)
    assert table[0][2:] == ["In the cluster", "In the rest", "OR or difference (95 % CI)", "p", "q"]
    line = next(r for r in table if r[:2] == ["Cluster 0", "gene1"])
    assert line[2:] == ["53 %", "24 %", "3.52 (2.41–5.12)", "< 0.001", "0.020"]
    age = next(r for r in table if r[:2] == ["Cluster 0", "age"])
    assert age[2:] == ["61.6", "47.6", "1.89 (1.68–2.10) SD", "< 0.001", "< 0.001"]


@pytest.mark.parametrize(
    ("odds", "said"),
    [
        ((0.0042, 0.00026, 0.068), "< 0.01 (< 0.01 to 0.068)"),
        ((0.0176, 0.012, 0.031), "0.018 (0.012–0.031)"),
        ((71.88, 29.84, 173.2), "71.9 (29.8–173)"),
        ((1781.0, 109.0, 29000.0), "> 1,000 (109 to > 1,000)"),
        ((0.4, 0.16, 0.997), "0.40 (0.16–0.997)"),
    ],
)
def test_no_ratio_is_zero_and_none_has_more_digits_than_matter(tmp_path, odds, said):
    def change(content):
        for r in content["cluster_features"]:
            if r["feature"] == "gene1":
                r |= dict(zip(("odds_ratio", "low", "high"), odds, strict=True))

    section = cluster_features.section(edited(grouped.make(tmp_path, k=2, features=3), change))
    assert {r[4] for r in rows(section) if r[1] == "gene1"} == {said}


def test_a_mean_has_its_unit_and_no_zeros_that_rounding_took(tmp_path):
    def change(content):
        content["cohort"] = {"variables": [{"name": "age", "unit": "years"}]}
        for r in content["cluster_features"]:
            if r["feature"] == "age":
                r |= {"share": 42.0, "rest": 140.0}

    section = cluster_features.section(edited(grouped.make(tmp_path, k=2, features=3), change))
    age = next(r for r in rows(section) if r[1] == "age, years")
    assert age[2:4] == ["42", "140"]
    assert "age 42 against 140" in descriptions(section)[1]
    assert not [r for r in rows(section) if r[1] == "gene1, years"]


def test_only_features_with_a_small_q_describe_a_cluster_in_the_picture(tmp_path):
    def change(content):
        for r in content["cluster_features"]:
            r["q"] = 0.01 if (r["cluster"], r["feature"]) == (0, "gene2") else 0.5

    run = edited(grouped.make(tmp_path, k=2, features=4), change)
    said = descriptions(cluster_features.section(run))[0]
    assert re.match(r"Cluster 0: gene2 .* against .*; Cluster 1: nothing clearly differs\.", said)


def test_hidden_features_are_called_hidden_and_not_drawn(tmp_path):
    def change(content):
        for r in content["cluster_features"]:
            if r["feature"] == "gene1":
                r |= dict.fromkeys(
                    ("share", "rest", "odds_ratio", "difference", "low", "high", "p", "q")
                )

    run = edited(grouped.make(tmp_path, k=2, features=3), change)
    section = cluster_features.section(run)
    assert "gene1" not in descriptions(section)[0]
    hidden = [r for r in rows(section) if r[1] == "gene1"]
    assert hidden == [
        [f"Cluster {c}", "gene1", "hidden", "hidden", "hidden", "–", "–"] for c in (0, 1)
    ]
    assert "fewer than 5 patients" in text(section)


def test_figures_of_many_clusters_fit_a_printed_page(tmp_path):
    run = read(grouped.make(tmp_path, k=12))
    for section in (cluster_features.section(run), cluster_map.cluster_images(run)):
        root = ET.fromstring(f"<div>{section.body}</div>")
        drawn = list(root.iter("svg"))
        assert len(drawn) > 2
        # as wide as the 688 px of a page, of which a caption leaves 950 of 998
        assert max(float(s.get("viewBox").split()[3]) for s in drawn) < 720 * 950 / 688


def test_survival_by_cluster_has_the_test_and_the_numbers(tmp_path):
    run = read(grouped.make(tmp_path, k=2))
    section = clusters.cluster_survival(run)
    said = descriptions(section)[0]
    # at time 1500 of 3000, exp(-5/30) and exp(-10/30), ± 0.06
    assert "Cluster 0: 0.85 (0.79–0.91) at 1,500" in said
    assert "Cluster 1: 0.72 (0.66–0.78) at 1,500" in said
    assert "χ² 61.2 on 1, p < 0.001" in text(section)


def test_settings_with_the_same_curves_are_drawn_once(tmp_path):
    def several(content):
        content["scenarios"].append(
            dict(content["scenarios"][0], scenario="skewed", title="Skewed")
        )
        for key in ("arms", "summary", "cluster_curves", "cluster_log_rank"):
            content[key] += [r | {"scenario": "skewed"} for r in content[key]]

    def unlike(content):
        row = next(r for r in content["cluster_curves"] if r["scenario"] == "skewed")
        row["low"] = 0.9

    run = edited(grouped.make(tmp_path, k=2), several)
    names = words.listed([f"“{title}”" for title in run.scenarios.values()])
    section = clusters.cluster_survival(run)
    once = descriptions(section)[0]
    assert once.count("Cluster 1:") == 1
    assert f"{names} give the same curves." in text(section)
    section = clusters.cluster_survival(edited(tmp_path, unlike))
    assert descriptions(section)[0].count("Cluster 1:") == 2
    assert "give the same curves" not in text(section)


def test_numbers_at_risk_are_those_that_the_run_shows(tmp_path):
    section = clusters.cluster_survival(read(grouped.make(tmp_path, k=1)))
    root = ET.fromstring(f"<div>{section.body}</div>")
    svg = next(root.iter("svg"))
    shown = ["".join(t.itertext()) for t in svg.iter("text")]
    assert [n for n in ("90", "74", "58", "42", "26", "10") if n in shown] == [
        "90", "74", "58", "42", "26", "10"
    ]  # fmt: skip
    assert "82" not in shown  # a time at which the run tells none


def test_the_map_draws_no_row_and_leaves_out_what_is_not_told(tmp_path):
    def change(content):
        content["cluster_map"] = [r for r in content["cluster_map"] if r["site"] is None]
        content["cluster_map"][0]["x"] = None

    run = edited(grouped.make(tmp_path, k=3), change)
    section = cluster_map.cluster_map(run)
    assert "Each hospital" not in text(section)
    said = descriptions(section)[0]
    assert "Cluster 1 at " in said
    assert "Cluster 0" not in said
    assert "the two components hold 62 % of the variance" in text(section)


def test_the_map_of_simulated_patients_has_them_alone_and_says_so(tmp_path):
    folder = grouped.make(tmp_path, k=3, umap=True)
    section = cluster_map.cluster_map(read(folder))
    said = [d for d in descriptions(section) if "imulated" in d]
    assert len(said) == 2  # of two arms
    assert set(said) == {
        "Simulated patients by cluster, laid out by UMAP. "
        "Cluster 0: 50; Cluster 1: 50; Cluster 2: 50."
    }
    for line in ("Simulated patients only", "No real patient is on this map", "none of them real"):
        assert line in text(section)
    # its data, which can be had as CSV, are those places and no more
    places = json.loads((folder / "results.json").read_text())["cluster_umap"][:3]
    data, _ = [found for found in downloads(section) if "umap_1" in found[0]]
    assert data[0] == ["cluster", "simulated_patient", "umap_1", "umap_2"]
    want = [
        [str(r["cluster"]), str(i), x, y]
        for r in places
        for i, (x, y) in enumerate(zip(r["x"], r["y"], strict=True))
    ]
    assert [[c, i, float(x), float(y)] for c, i, x, y in data[1:]] == want


def test_without_a_map_of_real_patients_that_of_simulated_ones_stands_alone(tmp_path):
    folder = grouped.make(tmp_path, k=2, umap=True, change={"cluster_map": []})
    section = cluster_map.cluster_map(read(folder))
    assert "Simulated patients only" in section.intro
    assert "principal component" not in text(section)
    assert text(section).count("Simulated patients only") == 1


def test_a_run_of_before_has_no_map_of_simulated_patients(tmp_path):
    run = edited(grouped.make(tmp_path), lambda content: content.pop("cluster_umap"))
    assert "imulated" not in text(cluster_map.cluster_map(run))


def test_pictures_name_the_place_of_every_feature(tmp_path):
    section = cluster_map.cluster_images(read(grouped.make(tmp_path, k=2)))
    table = rows(section)
    assert len(table) == 1 + grouped.SHAPE[0]
    assert table[1][1:] == [f"gene{i}" for i in range(1, 10)]
    assert table[6][-1] == "gene54"
    assert "none is a row of a table" in text(section)
    assert "cluster's real training patients" in section.intro


def test_over_a_network_pictures_stand_beside_the_average_of_blind_patients(tmp_path):
    folder = grouped.make(tmp_path, k=2, change={"network": {"runtime": "local"}})
    run = read(folder)
    assert run.deployed
    assert "cluster's real blind patients" in cluster_map.cluster_images(run).intro


def test_a_model_that_draws_no_patients_has_no_pictures(tmp_path):
    folder = grouped.make(tmp_path, images=False)
    assert cluster_map.cluster_images(read(folder)) is None
    assert "cluster-images" not in write(folder).read_text("utf-8")


def test_pictures_of_unshared_features_have_the_average_of_the_synthetic_patients(tmp_path):
    def change(content):
        content["cluster_features"] = []
        for r in content["cluster_images"]:
            r["values"] = [1.0] + [0.0] * 53

    section = cluster_map.cluster_images(edited(grouped.make(tmp_path, k=1), change))
    assert "average of the cluster's synthetic patients" in text(section)
    assert descriptions(section)[0].endswith("gene1 100 %, gene10 0 %, gene11 0 %.")


def test_known_classes_are_counted_by_cluster_and_small_counts_hidden(tmp_path):
    def change(content):
        content["cluster_confusion"][0]["n"] = None

    run = edited(grouped.make(tmp_path, k=2, outcome="classification"), change)
    section = clusters.cluster_confusion(run)
    assert rows(section) == [
        ["", *grouped.CLASSES], ["Cluster 0", "hidden", "10", "11"], ["Cluster 1", "19", "20", "21"]
    ]  # fmt: skip
    assert "fewer than 5 patients" in text(section)
    assert "Adjusted Rand index 0.700" in text(section)


# metrics ----------------------------------------------------------------------------------


def test_the_gap_is_drawn_of_the_first_metric_that_is_no_p_value(tmp_path):
    def change(content):
        content["evaluate"]["metrics"] = ["log_rank_p", "c_index", "silhouette"]

    run = edited(grouped.make(tmp_path), change)
    assert run.metric == "c_index"
    assert bounds.section(run).intro.startswith("C-index, further right is better.")
    assert "Of two patients, how often the one whose group" in bounds.section(run).intro


def test_of_an_error_less_is_better(tmp_path):
    def change(content):
        content["evaluate"]["metrics"] = ["reconstruction"]
        for row in (*content["arms"], *content["summary"]):
            if "metrics" in row:
                row["metrics"] = {"reconstruction": row["metrics"]["silhouette"]}
            elif row["metric"] == "silhouette":
                row["metric"] = "reconstruction"

    run = edited(grouped.make(tmp_path), change)
    assert run.known().sign == -1
    assert bounds.section(run).intro.startswith("Reconstruction error, further left is better.")


def test_p_values_are_neither_averaged_nor_compared(tmp_path):
    def change(content):
        pair = {"scenario": "natural", "arm": "deep", "against": "isolated", "p": 0.5, "n": 3,
                "difference": 0.1, "low": 0.0, "high": 0.2}  # fmt: skip
        content["comparisons"] = [
            {**pair, "metric": m} for m in ("silhouette", "log_rank_p", "d_calibration_p")
        ]
        for row in content["arms"]:
            row["metrics"]["log_rank_p"] = (0.0001, 0.02, 0.4)[row["repeat"]]

    section = bounds.section(edited(grouped.make(tmp_path), change))
    assert "< 0.001 to 0.40" in text(section)
    assert [r[2] for r in rows(section, -1)[1:]] == ["Silhouette"]


def test_runs_side_by_side_give_no_difference_of_p_values(tmp_path):
    folders = [grouped.make(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        (folder / "study.yaml").write_text("task: clustering")
        edited(folder, lambda c: c["evaluate"].update(test_mark=1))
    compared = Comparison.of(folders)
    by_metric = {x.metric: x.against for x in compared.lines() if x.arm == "deep"}
    assert by_metric["log_rank_p"] == (None, None)
    assert by_metric["silhouette"][1].value == 0
    page = comparing.write(compared, tmp_path / "c.html").read_text("utf-8")
    assert "Cycle accuracy" in page


def test_the_table_of_the_command_line_has_the_silhouette(tmp_path):
    content = json.loads((grouped.make(tmp_path) / "results.json").read_text())
    table = summary_table(content)
    assert table[0] == ["Silhouette", "natural"]
    assert [row[0] for row in table[1:]] == ["isolated", "deep", "centralised"]


def test_a_hospital_gains_the_groups_of_pooled_data(tmp_path):
    def change(content):
        row = next(r for r in content["arms"] if r["arm"] == "isolated")
        for site, value in (("hospital-1", 0.3), ("hospital-2", 0.95)):
            metrics = {"silhouette": 0.9, "agreement": value}
            content["arms"].append({**row, "site": site, "metrics": metrics})

    section = hospitals.sites(edited(grouped.make(tmp_path, n_sites=2), change))
    assert section.intro.startswith("Each line is one hospital: Agreement with pooled data")
    said = descriptions(section)[0]
    assert said.endswith("hospital-1: 0.300 → 0.930; hospital-2: 0.950 → 0.930.")


# the page ---------------------------------------------------------------------------------


def test_page_has_every_section_and_loads_nothing(tmp_path):
    page = write(grouped.make(tmp_path)).read_text("utf-8")
    root = ET.fromstring(page.partition("\n")[2])
    ids = {s.get("id") for s in root.iter("section")}
    assert SECTIONS | {"bounds", "paper"} <= ids
    assert "tripod" not in ids
    assert {e.tag for e in root.iter()} & {"script", "link", "img", "use", "image"} == set()
    assert not re.search(r"https?:|url\(|@import", page)
    assert not re.search(r"\b(nan|NaN|inf|null)\b", re.sub(r'base64,[^"]*', "", page))
    assert len(page.encode()) < 3_000_000
    for figure in root.iter("figure"):
        (said,) = (d.text for d in figure.iter("desc"))
        assert len(said) > 20
    assert {s.get("role") for f in root.iter("figure") for s in f.iter("svg")} == {"img"}


def test_nothing_a_user_wrote_becomes_markup(tmp_path):
    def spoil(content):
        for row in content["declared"]:
            row["title"] = EVIL
        for key in ("cluster_sites", "cluster_map"):
            for row in content[key][::3]:
                row["site"] = EVIL
        for row in content["cluster_features"][::2]:
            row["feature"] = EVIL
        for row in content["cluster_images"]:
            row["features"] = [EVIL] * len(row["features"])
        content["outcome"]["kind"] = EVIL

    folder = grouped.make(tmp_path, k=2, n_sites=3)
    edited(folder, spoil)
    root = ET.fromstring(write(folder).read_text("utf-8").partition("\n")[2])
    assert {e.tag for e in root.iter()} & {"script", "img"} == set()
    assert not [k for e in root.iter() for k in e.attrib if k.startswith("on")]


def test_a_study_that_predicts_leads_with_its_c_index_and_has_the_headline_of_gaps(tmp_path):
    run = read(grouped.make(tmp_path, change={"task": "survival"}))
    assert run.metric == "c_index"
    assert answer(run).startswith("There was no clear gap to close")
