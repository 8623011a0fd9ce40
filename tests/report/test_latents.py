"""The page of a study of latent coordinates, from made-up results whose answers are known."""

import json
import xml.etree.ElementTree as ET

import pytest

from fedcohort.report import history, write
from fedcohort.report.run import read
from fedcohort.report.sections import (
    bounds,
    headline,
    latent_errors,
    latent_map,
    latent_numbers,
    latent_views,
    training,
)
from fedcohort.report.verdict import answer, leading
from report import latents
from report.test_clusters import descriptions, downloads, edited, rows, text

SECTIONS = {
    "latent-errors", "latent-filled", "latent-map", "latent-numbers", "latent-views",
    "latent-sites",
}  # fmt: skip


# the answer -------------------------------------------------------------------------------


def test_headline_has_the_error_beside_both_bounds_and_that_of_a_missing_view(tmp_path):
    assert answer(read(latents.make(tmp_path))) == (
        "Training together reconstructs patients not as well as one table (error 0.31 against 0.30 "
        "standard deviations; a hospital alone 0.42), and fills in a missing view with an error of "
        "0.55 (a hospital alone 0.80)."
    )


def test_an_error_within_chance_of_one_table_is_as_good(tmp_path):
    def change(content):
        for row in content["arms"]:
            if row["arm"] == "centralised":
                value = 0.31 + (0.02, -0.02, 0.001)[row["repeat"]]
                row["metrics"]["reconstruction_mae"] = value

    said = answer(edited(latents.make(tmp_path), change))
    assert said.startswith("Training together reconstructs patients as well as one table (")


def test_most_of_the_gap_closed_is_almost_as_well_though_clearly_behind(tmp_path):
    def change(content):
        for row in content["arms"]:
            if row["arm"] == "centralised":
                row["metrics"]["reconstruction_mae"] += 0.005  # 0.110 of 0.115 closed

    run = edited(latents.make(tmp_path), change)
    assert run.difference("mv", "centralised", "iid").side == -1
    assert " almost as well as one table (" in answer(run)


def test_one_setting_that_is_worse_than_one_table_is_not_hidden(tmp_path):
    def change(content):
        for row in content["arms"]:
            if row["arm"] == "centralised" and row["scenario"] == "iid":
                value = 0.31 + (0.02, -0.02, 0.001)[row["repeat"]]
                row["metrics"]["reconstruction_mae"] = value

    said = answer(edited(latents.make(tmp_path), change))
    assert "as well as one table in 1 of 2 settings (" in said


def test_a_single_run_is_not_compared(tmp_path):
    def change(content):
        content["arms"] = [r for r in content["arms"] if r["repeat"] == 0]

    said = answer(edited(latents.make(tmp_path), change))
    assert "in too few runs to be compared with one table (" in said


def test_without_bounds_and_reconstruction_the_rest_is_said(tmp_path):
    def change(content):
        for key in ("arms", "declared", "summary"):
            content[key] = [r for r in content[key] if r["arm"] in ("mv", "vae")]

    run = edited(latents.make(tmp_path), change)
    assert answer(run) == (
        "Training together reconstructs patients (error 0.31 standard deviations), and fills in a "
        "missing view with an error of 0.55."
    )

    def filled(content):
        content["evaluate"]["metrics"] = ["imputation_mae"]
        content["summary"] = [r for r in content["summary"] if r["metric"] == "imputation_mae"]

    assert answer(edited(tmp_path, filled)) == (
        "Training together fills in a missing view with an error of 0.55 standard deviations."
    )


def test_of_errors_the_arm_with_the_least_leads_and_less_is_better(tmp_path):
    run = read(latents.make(tmp_path))
    assert leading(run).name == "mv"
    assert ", further left is better." in bounds.section(run).intro
    said = "".join(
        ET.fromstring(f"<div>{headline.by_scenario(run, leading(run))}</div>").itertext()
    )
    assert "Reconstruction error 0.310" in said
    # (0.42 − 0.31) / (0.42 − 0.30)
    assert "92\u00a0% of the gap closed" in said
    assert "it stays clearly behind all data in one place" in said
    assert "A missing view is filled in with an error of 0.550" in said
    assert "each hospital alone 0.800 (clearly more)" in said


def test_small_errors_have_the_digits_that_tell_them_apart(tmp_path):
    def change(content):
        for row in content["summary"]:
            row["mean"] /= 10

    said = answer(edited(latents.make(tmp_path), change))
    assert "(error 0.031 against 0.030 standard deviations; a hospital alone 0.042)" in said


def test_an_arm_behind_a_hospital_alone_has_no_negative_share(tmp_path):
    def change(content):
        for row in content["arms"]:
            if row["arm"] == "vae":
                row["metrics"]["reconstruction_mae"] += 0.2

    page = text(bounds.section(edited(latents.make(tmp_path), change)))
    assert "behind a hospital alone" in page
    assert "closes −" not in page


# errors -----------------------------------------------------------------------------------


def test_errors_stand_by_view_for_all_arms_with_the_interval_of_the_summary(tmp_path):
    run = read(latents.make(tmp_path))
    section = latent_errors.latent_errors(run)
    said = descriptions(section)[0]
    assert (
        "Given back, All views: Multi-view PPCA 0.310, Each hospital alone 0.420, Autoencoder "
        "0.350, All data in one place 0.300" in said
    )
    assert "Filled in, the whole view hidden, blood: Multi-view PPCA 0.650" in said
    data = downloads(section)[0]
    assert data[0] == ["scenario", "kind", "view", "arm", "mae", "low", "high"]
    found = {tuple(r[:4]): r[4:] for r in data[1:]}
    summary = run.summary("mv", "iid", "imputation_mae")
    want = [f"{v:.6g}" for v in (summary.mean, summary.low, summary.high)]
    assert found["iid", "imputation", "all", "mv"] == want
    assert found["iid", "imputation", "mri", "vae"] == ["0.6", "", ""]


def test_columns_stand_in_the_order_of_the_leading_arms_largest_error(tmp_path):
    found = rows(latent_errors.latent_errors(read(latents.make(tmp_path))))
    assert found[0][:4] == [
        "Column", "View", "Multi-view PPCA, given back", "Multi-view PPCA, filled in"
    ]  # fmt: skip
    # error + 0.1, error + 0.05, error − 0.05
    assert [r[:4] for r in found[1:]] == [
        ["mri", "whole", "0.310", "0.550"], ["blood", "whole", "0.410", "0.650"],
        ["c", "blood", "0.410", "0.650"], ["b", "mri", "0.360", "0.600"],
        ["a", "mri", "0.260", "0.500"],
    ]  # fmt: skip


def test_a_column_that_may_not_be_shown_is_in_no_table(tmp_path):
    def change(content):
        content["latent_errors"] = [r for r in content["latent_errors"] if r["feature"] != "b"]

    section = latent_errors.latent_errors(edited(latents.make(tmp_path), change))
    assert [r[0] for r in rows(section)[1:]] == ["mri", "blood", "c", "a"]
    assert "too few patients" in text(section)


# filled in beside measured ----------------------------------------------------------------


def test_a_dozen_columns_are_drawn_those_that_differ_most_first(tmp_path):
    section = latent_errors.latent_filled(read(latents.make(tmp_path)))
    data = [row for part in downloads(section) for row in part[1:]]
    assert list(dict.fromkeys(r[3] for r in data)) == [f"f{i:02d}" for i in range(13, 1, -1)]
    assert "2 further columns differ less, by 0.00 to 0.01" in text(section)
    mine = [r[6:] for r in data if r[3] == "f13"]
    assert mine == [
        ["measured", "-3", "-1", "0.2"], ["measured", "-1", "0", "0.3"],
        ["measured", "0", "3", "0.5"], ["filled in", "-3", "0", "0.63"],
        ["filled in", "0", "3", "0.37"],
    ]  # fmt: skip


def test_the_table_has_the_mean_distance_of_every_arm_and_setting(tmp_path):
    found = rows(latent_errors.latent_filled(read(latents.make(tmp_path))))
    assert found[0] == ["", "mri"]
    assert len(found) == 1 + len(latents.SCENARIOS) + 1
    assert {r[1] for r in found[1:]} == {f"{sum(i / 100 for i in range(14)) / 14:.2f}"}


# the latent space -------------------------------------------------------------------------


def test_hospitals_and_classes_have_a_figure_each_with_a_panel_a_setting(tmp_path):
    section = latent_map.latent_map(read(latents.make(tmp_path)))
    hospitals, classes, *pooled = downloads(section)
    assert [r[:3] for r in hospitals[1:]] == [
        [c, s, "75"] for c in latents.SCENARIOS for s in latents.SITES
    ]
    assert [r[1] for r in classes[1:]] == ["ill", "well"] * len(latents.SCENARIOS)
    assert len(pooled) == 2
    assert "The two components hold 61 % of the variance" in text(section).replace("\u00a0", " ")


def test_priors_have_a_figure_of_their_own_and_a_sentence(tmp_path):
    def change(content):
        site = [r for r in content["latent_map"] if r["by"] == "site"]
        own = [{**r, "by": "prior", "n": None} for r in site]
        content["latent_map"] += [*own, *({**r, "name": "common prior"} for r in own)]

    section = latent_map.latent_map(edited(latents.make(tmp_path), change))
    priors = downloads(section)[2]
    assert {r[1] for r in priors[1:]} == {"common prior", *latents.SITES}
    assert {r[2] for r in priors[1:]} == {""}
    assert "A prior is the distribution" in text(section)
    without = latent_map.latent_map(read(latents.make(tmp_path)))
    assert "A prior is the distribution" not in text(without)


def test_more_hospitals_than_looks_are_told_apart_by_none(tmp_path):
    def change(content):
        row = next(r for r in content["latent_map"] if r["by"] == "site")
        content["latent_map"] = [{**row, "name": f"site-{i}"} for i in range(12)]

    section = latent_map.latent_map(edited(latents.make(tmp_path), change))
    assert [r[1] for r in downloads(section)[0][1:]] == [f"site-{i}" for i in range(12)]
    assert "A hospital" in text(section)


# dimensions -------------------------------------------------------------------------------


def of_several(content):
    """Give the arms settings: one chooses q, and `vae` is the same with 4."""
    for arm in content["declared"]:
        q = {"mv": "auto", "vae": 4}.get(arm["arm"])
        arm["settings"] = {"q": q, "noise": "column"} if q else {}


def test_errors_stand_by_q_and_an_arm_that_chose_at_what_it_took(tmp_path):
    section = latent_numbers.section(edited(latents.make(tmp_path), of_several))
    data = next(d for d in downloads(section) if d[0][1] == "metric")
    mine = [r[2:5] for r in data[1:] if r[:2] == ["views", "imputation_mae"]]
    assert mine == [["3", "mv", "0.55"], ["4", "vae", "0.6"]]
    assert "what is filled in gets better as long as it does" in section.intro


def test_arms_that_differ_in_more_than_q_are_no_family(tmp_path):
    def change(content):
        of_several(content)
        next(a for a in content["declared"] if a["arm"] == "vae")["settings"]["noise"] = "view"

    run = edited(latents.make(tmp_path), change)
    assert not any(d[0][1] == "metric" for d in downloads(latent_numbers.section(run)))


def test_an_arm_of_more_dimensions_does_not_lead_in_place_of_the_one_that_chose(tmp_path):
    def change(content):
        of_several(content)
        for row in (*content["arms"], *content["summary"]):
            if row["arm"] == "vae" and "metrics" in row:
                row["metrics"]["reconstruction_mae"] -= 0.2
            elif row["arm"] == "vae" and row["metric"] == "reconstruction_mae":
                row["mean"] -= 0.2

    run = edited(latents.make(tmp_path), change)
    assert leading(run).name == "mv"
    assert "Autoencoder" not in descriptions(latent_errors.latent_errors(run))[0]


def test_the_number_taken_is_the_smallest_within_two_standard_errors(tmp_path):
    section = latent_numbers.section(read(latents.make(tmp_path)))
    assert (
        "3 dimensions are enough: 4 have the lowest WAIC, not clearly; 2 to 4 were tried"
        in (descriptions(section)[0])
    )
    assert "within two standard errors of the lowest" in section.intro
    assert rows(section)[:4] == [
        ["Setting", "q", "WAIC", "above the lowest", "standard error", "cost"],
        ["Patients spread at random", "2", "900", "400", "35", "9"],
        ["Patients spread at random", "3, taken", "520", "20", "11", "9"],
        ["Patients spread at random", "4", "500", "0", "0", "9"],
    ]


@pytest.mark.parametrize(
    ("taken", "waic", "said"),
    [
        (4, 500.0, "more may be better"),
        (2, 300.0, "2 dimensions, the fewest that were tried, have the lowest WAIC"),
    ],
    ids=["largest", "fewest"],
)
def test_the_edges_of_what_was_tried_are_named(tmp_path, taken, waic, said):
    def change(content):
        for r in content["latent_numbers"]:
            r["taken"] = r["q"] == taken
            r["waic"] = waic if r["q"] == taken else r["waic"]

    assert said in text(latent_numbers.section(edited(latents.make(tmp_path), change)))


def test_one_number_is_no_choice(tmp_path):
    def change(content):
        content["latent_numbers"] = [r for r in content["latent_numbers"] if r["taken"]]

    assert latent_numbers.section(edited(latents.make(tmp_path), change)) is None


# views ------------------------------------------------------------------------------------


def test_views_have_their_columns_hospitals_noise_and_spreads(tmp_path):
    found = rows(latent_views.section(read(latents.make(tmp_path))))
    assert found[1:] == [
        ["mri", "2", "3", "0.40", "84.0 %", "0.020", "0.031"],
        ["blood", "1", "2", "0.40", "84.0 %", "0.020", "0.031"],
    ]


def test_pooled_data_have_no_spread_between_hospitals(tmp_path):
    def change(content):
        for r in content["latent_views"]:
            r["sites"] = 1 if r["arm"] == "centralised" else r["sites"]

    section = latent_views.section(edited(latents.make(tmp_path), change))
    assert rows(section, -1)[1] == ["mri", "2", "–", "0.40", "84.0 %", "–", "–"]


def test_the_course_of_the_spreads_is_that_of_the_q_taken(tmp_path):
    run = read(latents.make(tmp_path))
    data = downloads(latent_views.section(run))[0]
    mine = [r for r in data[1:] if r[2:4] == ["sd_mu", "mri"]]
    want = [0.1 * latents.TAKEN / 10 ** (r / 4) for r in range(5)]
    assert [int(r[4]) for r in mine] == [1, 2, 3, 4, 5]
    assert [float(r[5]) for r in mine] == pytest.approx(want, rel=1e-5)


def test_the_training_curve_is_that_of_the_q_taken_and_not_a_mean_over_all_tried(tmp_path):
    run = read(latents.make(tmp_path))
    found = training.read(run.folder / "history.csv", history.final_values(run))
    assert [m for _, m, _ in found["mv", "iid", "log_likelihood"]] == [
        -1000 + 100 * latents.TAKEN + r for r in range(5)
    ]


def test_a_private_arms_spreads_stand_beside_the_root_mean_square_of_the_others(tmp_path):
    folder = latents.make(tmp_path)
    lines = [
        f"vae,iid,0,,{r},{name},{0.3 / (r + 1)}" for r in range(4) for name in ("sd_mu", "sd_w")
    ]
    history = folder / "history.csv"
    history.write_text("\n".join([*latents.history(), *lines]) + "\n")

    def change(content):
        for row in content["arms"]:
            row["epsilon"] = 10.0 if row["arm"] == "vae" else None

    section = latent_views.section(edited(folder, change))
    found = next(d for d in downloads(section) if len(d[0]) == 5)
    mine = [float(r[4]) for r in found[1:] if r[:3] == ["vae", "iid", "sd_mu"]]
    assert mine == pytest.approx([0.3 / (r + 1) for r in range(4)], rel=1e-5)
    assert "Autoencoder, ε 10" in text(section)
    views = {("sd_mu", 1): [(1.0, 3.0), (2.0, 1.0)], ("sd_mu", 2): [(1.0, 4.0)]}
    assert latent_views.over_views(views, "sd_mu") == [(1.0, pytest.approx(12.5**0.5))]


# hospitals --------------------------------------------------------------------------------


def test_words_name_the_hospital_that_differs_and_the_view(tmp_path):
    section = latent_map.latent_sites(read(latents.make(tmp_path)))
    assert "site-2 has clearly other patients. blood is clearly off at site-10." in text(section)
    assert rows(section) == [
        ["Hospital", "Patients", "mri", "blood"],
        ["site-1", "0.10p 1.00", "0.10p 1.00", "0.10p 1.00"],
        ["site-2", "1.40p 0.004", "0.10p 1.00", "–"],
        ["site-10", "0.10p 1.00", "0.10p 1.00", "1.40p 0.004"],
    ]
    bold = [b.text for b in ET.fromstring(f"<div>{section.body}</div>").iter("b")]
    assert bold.count("1.40") == 2 * len(latents.SCENARIOS)


def test_nothing_is_said_of_hospitals_that_were_not_compared(tmp_path):
    run = edited(latents.make(tmp_path), lambda content: content.update(latent_sites=[]))
    assert latent_map.latent_sites(run) is None


def test_hospitals_that_do_not_differ_are_said_not_to(tmp_path):
    def change(content):
        for r in content["latent_sites"]:
            r["p_adjusted"] = 0.05

    said = text(latent_map.latent_sites(edited(latents.make(tmp_path), change)))
    assert "No hospital has clearly other patients. None clearly measures a view" in said


# the page ---------------------------------------------------------------------------------


def test_the_page_has_every_section_and_says_what_an_error_is(tmp_path):
    page = write(latents.make(tmp_path)).read_text("utf-8")
    root = ET.fromstring(page.partition("\n")[2])
    assert {s.get("id") for s in root.iter("section")} >= SECTIONS | {"bounds", "curves"}
    assert "An error of reconstruction falls with every further latent number" in page


def test_a_study_of_another_task_has_none_of_these_sections(tmp_path):
    keys = [f"latent_{name}" for name in ("views", "numbers", "sites", "errors",
                                             "filled", "map")]  # fmt: skip
    folder = latents.make(tmp_path, change={k: [] for k in keys} | {"task": "regression"})
    page = write(folder).read_text("utf-8")
    assert not any(f'id="{s}"' in page for s in SECTIONS)
    assert "fills in a missing view" not in page


def test_what_a_user_wrote_stays_text(tmp_path):
    evil = "<script>alert(1)</script>"

    def spoil(content):
        for key in ("latent_views", "latent_errors"):
            for row in content[key]:
                row["view"] = evil
        for row in content["latent_sites"]:
            row["site"] = evil

    folder = latents.make(tmp_path)
    edited(folder, spoil)
    root = ET.fromstring(write(folder).read_text("utf-8").partition("\n")[2])
    assert not list(root.iter("script"))
    assert json.loads((folder / "results.json").read_text())["latent_sites"][0]["site"] == evil
