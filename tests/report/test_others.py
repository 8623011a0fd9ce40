"""Who helps: the others as they rank, and what each choice would include, without a script."""

from __future__ import annotations

import re

import pytest

from fedcohort.report import write
from report import latents

RANKED = (("b", -0.2, True), ("a", 0.013, True), ("c", 0.5, False))


def row(site, value, chosen, repeat=0, **more):
    return {
        "arm": "mv", "scenario": "iid", "repeat": repeat, "site": site,
        "measure": "transfer loss", "value": value, "least": True, "chosen": chosen, **more,
    }  # fmt: skip


def section_of(folder, rows):
    page = write(latents.make(folder, {"others": rows})).read_text("utf-8")
    found = re.search(r'<section[^>]*id="others".*?</section>', page, re.DOTALL)
    return page, found and found[0]


@pytest.fixture
def drawn(tmp_path):
    later = [row(site, 9.0, False, repeat=1) for site, *_ in RANKED]
    return section_of(tmp_path / "out", [row(*one) for one in RANKED] + later)


def test_the_table_has_the_others_of_the_first_repeat_in_their_order(drawn):
    _, section = drawn
    body = section[section.index("<tbody") :]
    assert re.findall(r"<th[^>]*>(\w)</th>", body) == ["b", "a", "c"]
    assert "9.0" not in body


def test_each_choice_names_whom_it_includes_and_the_threshold_that_does(drawn):
    _, section = drawn
    said = re.findall(r'<p class="says k(\d+)-says">(.*?)</p>', section)
    assert said == [
        ("1", "1 hospital, transfer loss up to −0.200: b."),
        ("2", "2 hospitals, transfer loss up to 0.0130: b and a."),
        ("3", "3 hospitals, transfer loss up to 0.500: b, a and c."),
    ]


def test_what_the_model_has_is_chosen_at_first(drawn):
    _, section = drawn
    assert re.findall(r'<input [^>]*class="k(\d)" checked', section) == ["2"]


def test_styles_shade_as_many_rows_as_are_chosen_and_show_their_line(drawn):
    page, _ = drawn
    style = page[page.index("<style") : page.index("</style>")]
    for k in (1, 2, 3, 12):
        assert f".pick:has(.k{k}:checked) tbody tr:nth-child(-n+{k})" in style
        assert f".pick:has(.k{k}:checked) .k{k}-says" in style


def test_without_a_personal_arm_there_is_no_such_section(tmp_path):
    assert section_of(tmp_path / "out", [])[1] is None
