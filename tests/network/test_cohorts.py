"""No two studies of a site are over patients who differ in one to four, and nobody is told whom."""

import dataclasses
import itertools
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from fedcohort.network.node.table import open_table
from fedcohort.network.state import budget, cohorts, decisions, durable
from fedcohort.network.state import budget as spending
from fedcohort.network.state.cohorts import Cohorts, digests, parts
from fedcohort.network.state.policy import Config
from fedcohort.network.state.replay_guard import OnDisk
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.study.file.terms import Terms
from hospital import DICTIONARY, STUDY, Hospital, patients

KEY = bytes(range(32))


def marks(n, start=0):
    return [b"%016d" % i for i in range(start, start + n)]


def of(ledger, study, ids, least=1):
    """Note one study over the patients of these numbers."""
    ids = np.asarray(sorted(ids))
    ledger.note(study, f"name-{study}", [marks(1, i)[0] for i in ids],
                {"analysed": np.arange(len(ids))}, least)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(
    first=st.sets(st.integers(0, 30), min_size=5),
    out=st.sets(st.integers(0, 30)),
    more=st.sets(st.integers(31, 40)),
    least=st.integers(1, 8),
)
def test_a_cohort_is_refused_exactly_where_it_differs_by_few(first, out, more, least):
    with tempfile.TemporaryDirectory() as folder:
        _hold_two(Cohorts(Path(folder), "patients", least), first, (first - out) | more, least)


def _hold_two(ledger, first, second, least):
    of(ledger, "a", first)
    if 0 < len(first ^ second) < least:
        with pytest.raises(Refused, match="name-a"):
            of(ledger, "b", second)
        assert ledger.studies() == ["name-a"]
    else:
        of(ledger, "b", second)
        assert ledger.studies() == ["name-a", "name-b"]


def test_every_earlier_study_counts_and_so_does_every_set_of_each(tmp_path):
    ledger = Cohorts(tmp_path, "patients", 5)
    sets = {"analysed": np.arange(50), "train-r0000": np.arange(38)}
    ledger.note("a", "first", marks(50), sets)
    of(ledger, "b", range(100, 150))
    for ids in (range(48), range(40), range(35), range(96, 150)):
        with pytest.raises(Refused, match="cohort ledger"):
            of(ledger, "c", ids)
    of(ledger, "c", range(44))


def test_the_same_study_again_and_the_same_patients_again_are_allowed(tmp_path):
    ledger = Cohorts(tmp_path, "patients", 5)
    of(ledger, "a", range(50))
    of(ledger, "a", range(50))
    of(ledger, "b", range(50))
    assert ledger.studies() == ["name-a", "name-b"]


def test_the_larger_of_the_sites_and_the_studys_least_counts(tmp_path):
    ledger = Cohorts(tmp_path, "patients", 5)
    of(ledger, "a", range(50))
    with pytest.raises(Refused, match="fewer than 10"):
        of(ledger, "b", range(57), least=10)
    of(ledger, "b", range(57))


def test_other_data_sets_are_not_compared_and_a_site_may_allow_differences(tmp_path):
    of(Cohorts(tmp_path, "patients", 5), "a", range(50))
    of(Cohorts(tmp_path, "biobank", 5), "b", range(49))
    of(Cohorts(tmp_path, "patients", 5, "allow"), "c", range(49))
    with pytest.raises(Refused):
        of(Cohorts(tmp_path, "patients", 5), "d", range(48))


def test_a_refusal_names_the_rule_and_the_study_and_tells_no_number_of_patients(tmp_path):
    ledger = Cohorts(tmp_path, "patients", 5)
    of(ledger, "a", range(50))
    told = []
    for n in (49, 48, 47, 46):
        with pytest.raises(Refused) as error:
            ledger.check("b", marks(n), {"analysed": np.arange(n)})
        told.append(str(error.value))
        assert error.value.code == "cohort"
        assert "'name-a'" in told[-1]
        assert "\n" not in told[-1]
    assert len(set(told)) == 1


def test_what_is_noted_is_there_after_a_kill(tmp_path):
    script = (
        "import os, numpy as np, sys; from pathlib import Path\n"
        "from fedcohort.network.state.cohorts import Cohorts\n"
        "marks = [b'%016d' % i for i in range(50)]\n"
        "Cohorts(Path(sys.argv[1]), 'patients', 5).note('a', 'first', marks, "
        "{'analysed': np.arange(50)})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    with pytest.raises(Refused, match="first"):
        of(Cohorts(tmp_path, "patients", 5), "b", range(1, 50))


def test_the_ledgers_file_holds_no_cell_and_not_the_secret(tmp_path):
    frame = patients(60)
    ledger = Cohorts(tmp_path, "patients", 5)
    ledger.note("a", "first", digests(frame, ledger.key), {"analysed": np.arange(60)})
    held = (tmp_path / "cohorts.sqlite").read_bytes()
    assert ledger.key not in held
    for cell in [*frame["pid"], *frame["note"], *frame["seen"], *frame["marker"].map(str)]:
        assert cell.encode() not in held
    for name in ("cohorts.sqlite", "cohorts.key"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    with sqlite3.connect(tmp_path / "cohorts.sqlite") as db:
        found = {bytes(d) for (d,) in db.execute("SELECT digest FROM patients")}
    # without the secret a guess at a row cannot be confirmed
    assert not found & set(digests(frame, bytes(32)))


def test_a_lost_or_damaged_secret_is_said_in_one_line(tmp_path):
    Cohorts(tmp_path, "patients", 5)
    (tmp_path / "cohorts.key").write_bytes(b"short")
    with pytest.raises(InputError, match="no secret of the cohort ledger"):
        Cohorts(tmp_path, "patients", 5)


def test_a_ledger_that_notes_studies_gets_no_new_secret(tmp_path):
    """Else the same patients have other marks, and 98 of 100 pass."""
    key = Cohorts(tmp_path, "patients", 5).key
    (tmp_path / "cohorts.key").unlink()
    assert Cohorts(tmp_path, "patients", 5).key != key, "nothing is noted yet"
    of(Cohorts(tmp_path, "patients", 5), "a", range(100))
    (tmp_path / "cohorts.key").unlink()
    for data in ("patients", "others"):
        with pytest.raises(InputError, match=r"is gone, and cohorts\.sqlite beside it") as error:
            Cohorts(tmp_path, data, 5)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "cohorts.key").exists()


def test_a_ledger_that_is_no_data_base_is_said_in_one_line(tmp_path):
    Cohorts(tmp_path, "patients", 5)
    (tmp_path / "cohorts.sqlite").write_bytes(b"no data base" * 100)
    with pytest.raises(InputError, match="cannot be used as the cohort ledger"):
        Cohorts(tmp_path, "patients", 5)


def test_what_is_noted_outlasts_a_loss_of_power(tmp_path):
    for of in (budget, cohorts, decisions, spending):
        assert of.opened is durable.opened
        with of.opened(tmp_path / "any.sqlite") as db:
            assert db.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    assert (tmp_path / "any.sqlite").stat().st_mode & 0o777 == 0o600


def test_what_a_session_was_asked_first_outlasts_a_loss_of_power(tmp_path, monkeypatch):
    """It is on the disk, with its name, before the node answers."""
    on_disk, replaced = [], []
    sync, replace_ = os.fsync, Path.replace

    def synced(handle):
        on_disk.append(os.fstat(handle).st_mode)
        sync(handle)

    def renamed(path, to):
        replaced.append(len(on_disk))
        return replace_(path, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    once = OnDisk(tmp_path, "ab" * 32, "mark", "describe")
    assert once("sites", "one", 1)
    assert replaced == [1]
    assert [stat.S_ISDIR(mode) for mode in on_disk] == [False, True]
    assert not OnDisk(tmp_path, "ab" * 32, "mark", "describe")("sites", "two", 1)


# who a patient is -----------------------------------------------------------------------


def test_a_row_keeps_its_mark_in_another_order_of_rows_or_columns_and_as_another_type():
    frame = patients(40)
    found = digests(frame, KEY)
    order = np.random.default_rng(0).permutation(40)
    assert digests(frame.iloc[order], KEY) == [found[i] for i in order]
    assert digests(frame[frame.columns[::-1]], KEY) == found
    assert digests(frame.astype({"age": "float64", "cens": bool}), KEY) == found


def test_every_row_has_a_mark_of_its_own_even_where_rows_are_alike():
    frame = pd.DataFrame({"a": [1.0, 1.0, np.nan, 2.0], "b": ["x", "x", None, ""]})
    assert len(set(digests(frame, KEY))) == 4
    split = pd.DataFrame({"a": ["1", "1\x1f"], "b": ["\x1f2", "2"]})
    assert len(set(digests(split, KEY))) == 2


# a node ---------------------------------------------------------------------------------


@pytest.fixture
def hospital(tmp_path):
    (tmp_path / "data").mkdir()
    patients(60).to_csv(tmp_path / "data" / "patients.csv", index=False)
    made = Hospital(tmp_path, {"min_rows": 20})
    yield made
    made.node.close()


def submit(made, study):
    """Offer a study, and ask for one reply of it."""
    offer = made.signed(made.terms(study))
    return offer, made.offered(offer)


def varied(**change):
    """Return the hospital's study with another name, and with lines in place of others."""
    text = STUDY
    for old, new in change.pop("lines", ()):
        assert old in text
        text = text.replace(old, new)
    return text.replace("study: ", "study: other-", 1)


def released(made, offer):
    """Let a study's first session be opened, as by its first call."""
    made.node._open_session(offer.hash, "describe")


def near(made, low=1, high=5):
    """Return the hospital's study with a blind share that moves few of its patients, or many."""
    data = Config.read(made.config).data
    first = open_table(made.terms(), "north", data, 20, KEY)
    marks = np.array(first.marks)
    for i in range(1, 100):
        lines = [("test_fraction: 0.25", f"test_fraction: {0.25 + i / 1e4:.4f}")]
        study = varied(lines=lines)
        table = open_table(made.terms(study), "north", data, 20, KEY)
        own = np.array(table.marks)
        apart = [
            len(set(marks[a].tolist()) ^ set(own[b].tolist()))
            for a, b in itertools.product(parts(first).values(), parts(table).values())
        ]
        if any(low <= d < high for d in apart) and not any(0 < d < low for d in apart):
            return study
    raise AssertionError("no share moves that many patients")


def test_blind_shares_that_move_few_patients_are_refused_and_others_are_not(hospital):
    few, many = near(hospital), near(hospital, 5, 40)
    offer, told = submit(hospital, STUDY)
    assert told["state"] == "approved", told
    released(hospital, offer)
    assert submit(hospital, many)[1]["state"] == "approved"
    _, told = submit(hospital, few)
    assert (told["state"], told["code"]) == ("refused", "cohort")
    assert "'small'" in told["reason"]


def test_a_code_for_missing_that_leaves_out_few_patients_is_refused(hospital):
    offer, told = submit(hospital, STUDY)
    assert told["state"] == "approved", told
    released(hospital, offer)
    rare = int(patients(60)["time"].iloc[0])
    assert (patients(60)["time"] == rare).sum() < 5
    coded = DICTIONARY.replace("unit: days}", f"unit: days, missing: [{rare}]}}")
    assert coded != DICTIONARY
    study = varied(lines=[("  sites:", "  exclude: [missing outcome]\n  sites:")])
    told = hospital.offered(hospital.signed(hospital.terms(study, coded)))
    assert (told["state"], told["code"]) == ("refused", "cohort"), told
    assert str(rare) not in told["reason"]


def test_a_study_that_was_offered_and_never_asked_bars_no_other(hospital):
    _, told = submit(hospital, STUDY)
    assert told["state"] == "approved"
    assert hospital.node._cohorts.studies() == []


def test_two_studies_offered_together_are_told_apart_when_the_second_is_first_asked(hospital):
    first, told = submit(hospital, STUDY)
    assert told["state"] == "approved"
    second, told = submit(hospital, near(hospital))
    assert told["state"] == "approved"
    released(hospital, first)
    with pytest.raises(Refused, match="cohort ledger"):
        released(hospital, second)


def test_marks_do_not_depend_on_what_a_study_reads(hospital):
    data = Config.read(hospital.config).data
    whole = open_table(hospital.terms(), "north", data, 20, KEY)
    other = Terms.from_json(hospital.terms(varied(lines=[("arms:", "seed: 11\narms:")])).to_json())
    again = open_table(other, "north", data, 20, KEY)
    assert set(whole.marks) == set(again.marks)
    assert whole.marks != again.marks  # each study has an order of its own
    by_mark = dict(zip(whole.marks, whole.frame.itertuples(index=False), strict=True))
    for mark, row in zip(again.marks, again.frame.itertuples(index=False), strict=True):
        assert by_mark[mark] == row


def test_a_sites_identifiers_know_a_patient_whose_values_changed(hospital):
    data = Config.read(hospital.config).data
    by_rows = open_table(hospital.terms(), "north", data, 20, KEY)
    (hospital.folder / "data" / "own.yaml").write_text(DICTIONARY)
    by_name = dataclasses.replace(data, dictionary="own.yaml")
    before = open_table(hospital.terms(), "north", by_name, 20, KEY)
    changed = patients(60)
    changed.loc[0, "age"] += 1
    changed.to_csv(hospital.table, index=False)
    after = open_table(hospital.terms(), "north", by_name, 20, KEY)
    assert set(before.marks) == set(after.marks)
    assert (
        len(set(by_rows.marks) ^ set(open_table(hospital.terms(), "north", data, 20, KEY).marks))
        == 2
    )


def test_one_study_over_two_exports_that_differ_in_few_is_refused_and_no_export_is_forgotten(
    tmp_path,
):
    """Else a lead hands the same study in after each export, and takes the results apart."""
    ledger = Cohorts(tmp_path, "patients", 5)
    of(ledger, "a", range(50))
    of(ledger, "a", range(50))
    with pytest.raises(Refused, match="cohort ledger"):
        of(ledger, "a", range(52))
    of(ledger, "a", range(60))
    for ids in (range(48), range(52), range(58), range(63)):
        with pytest.raises(Refused, match="name-a"):
            of(ledger, "a", ids)
    of(ledger, "a", range(50))  # the first again
    ledger.note("b", "other", marks(40, 100), {"train-r0000": np.arange(38)})
    ledger.note("b", "other", marks(40, 100), {"train-r0001": np.arange(1, 38)})  # another set of b
