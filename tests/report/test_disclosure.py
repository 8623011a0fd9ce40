import json
import math
from collections import Counter

import pytest

from fedcohort.protocol.errors import DataError
from fedcohort.report import plain_ledger
from fedcohort.report.disclosure import sent
from report import synthetic


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    return synthetic.make(place, scenarios=["iid", "unbalanced"], repeats=2, n_sites=3)


def test_totals_are_those_of_a_plain_count_of_the_lines(folder):
    calls, numbers, sizes = Counter(), Counter(), Counter()
    for text in (folder / "ledger.jsonl").read_text().splitlines():
        line = json.loads(text)
        key = line["arm"], line["site"], line["step"], line["verb"]
        calls[key] += 1
        for field in line["fields"].values():
            numbers[key] += math.prod(field["shape"])
            sizes[key] += field["bytes"]
    found = {(s.arm, s.site, s.step, s.verb): s for s in sent(folder)}
    assert found.keys() == calls.keys()
    for key, s in found.items():
        assert (s.calls, s.numbers, s.bytes) == (calls[key], numbers[key], sizes[key])
        assert s.runs == 4


def test_spaces_in_lines_change_nothing(folder, tmp_path):
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    (tmp_path / "ledger.jsonl").write_text("\n".join(json.dumps(json.loads(x)) for x in lines))
    assert sent(tmp_path) == sent(folder)


def test_plain_words_name_step_times_numbers_and_who_sees_them(folder):
    text = " ".join(" ".join(plain_ledger(folder)).split())
    # gathered once: 7 + 7 numbers; summed 30 times: 41 + 1 numbers; and 64 + 64 once: in all
    # 14 + 30·42 + 128 = 1,402 numbers of 8 bytes in 32 replies
    assert (
        "Exact gradient, from each site: 32 replies, 1,402 numbers, 11.2 kB; 4 training runs in all"
    ) in text
    assert (
        "describe columns: 1 time, 14 numbers each (low and high); SEEN BY THE COORDINATOR; "
        "preparing the data"
    ) in text
    assert (
        "loss gradient: 30 times, 42 numbers each (gradient and loss); only the sum over sites; "
        "training"
    ) in text
    assert "SEEN BY THE COORDINATOR = each site's own reply" in text


def heads(folder):
    return [line.partition(":")[0] for line in plain_ledger(folder) if ", from " in line]


def test_what_left_all_sites_alike_is_told_once_and_sites_are_named_in_natural_order(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1, n_sites=11)
    lines = plain_ledger(folder)
    everyone = ", ".join(f"site-{i}" for i in range(1, 11)) + " and site-11."
    assert " ".join(" ".join(lines[:2]).split()).endswith(everyone)
    assert len(heads(folder)) == len({head.partition(", from ")[0] for head in heads(folder)})
    assert {head.partition(", from ")[2] for head in heads(folder)} == {"each site"}


def changed(folder, out, change):
    """Copy a run, its ledger's lines changed or, where that says None, left out."""
    lines = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    kept = [json.dumps(line) for line in map(change, lines) if line is not None]
    (out / "ledger.jsonl").write_text("\n".join(kept))
    (out / "results.json").write_text((folder / "results.json").read_text())
    return out


def test_a_site_that_sent_another_number_stands_for_itself(folder, tmp_path):
    def change(line):
        here = (line["arm"], line["site"], line["step"]) == ("exact", "site-2", "loss_gradient")
        return None if here and line["repeat"] == 1 and line["call"] % 2 else line

    found = heads(changed(folder, tmp_path, change))
    assert "Exact gradient, from each site but site-2" in found
    assert "Exact gradient, from site-2" in found
    assert len(found) == len(heads(folder)) + 1
    said = next(x for x in plain_ledger(tmp_path) if x.startswith("Exact gradient, from site-2:"))
    assert "on average 2" in said


def test_no_line_is_wider_than_a_hundred_characters(folder):
    assert max(map(len, plain_ledger(folder))) <= 100


def test_bounds_are_no_part_of_what_left_a_site(folder, tmp_path):
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    central = [json.dumps({**json.loads(x), "arm": "centralised"}) for x in lines[:5]]
    (tmp_path / "ledger.jsonl").write_text("\n".join(central))
    (tmp_path / "results.json").write_text((folder / "results.json").read_text())
    assert plain_ledger(tmp_path)[0].startswith("Nothing left any site")


def test_a_damaged_line_is_named_by_its_number(folder, tmp_path):
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    (tmp_path / "ledger.jsonl").write_text("\n".join([*lines[:6], lines[6][:40]]))
    with pytest.raises(DataError, match="line 7"):
        sent(tmp_path)


def test_without_a_ledger_nothing_is_claimed_to_have_left(folder, tmp_path):
    (tmp_path / "results.json").write_text((folder / "results.json").read_text())
    assert sent(tmp_path) == []
    assert plain_ledger(tmp_path)[0].startswith("Nothing left any site")


def test_what_a_step_does_is_told_where_the_run_says_it(folder, tmp_path):
    content = json.loads((folder / "results.json").read_text())
    for arm in content["declared"]:
        arm["steps"] = {"loss_gradient": "Sum the loss and its gradient over the site's patients."}
    (tmp_path / "results.json").write_text(json.dumps(content))
    (tmp_path / "ledger.jsonl").write_text((folder / "ledger.jsonl").read_text())
    text = " ".join(" ".join(plain_ledger(tmp_path)).split())
    assert "training: Sum the loss and its gradient over the site's patients" in text
