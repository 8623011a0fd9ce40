"""Arrays in scratch files hold what was written, and are walked in blocks that fit into memory."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort import mapped
from fedcohort.data.tables import LabelledTable


def written(x: np.ndarray) -> np.ndarray:
    """Return x (n, p) from a scratch file, written in two parts."""
    out = mapped.Writer(*x.shape)
    for part in np.array_split(x, 2):
        out.append(part)
    return out.finished()


def test_numbers_are_those_written_and_cannot_be_changed():
    x = np.arange(12.0).reshape(6, 2)
    found = written(x)
    assert mapped.is_mapped(found)
    assert mapped.is_mapped(found[2:4].T)
    assert not mapped.is_mapped(x)
    mapped.release(found)
    assert_array_equal(found, x)
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def test_a_scratch_file_has_no_name_and_one_reader(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    out = mapped.Writer(2, 1)
    about = os.fstat(out._file.fileno())
    assert about.st_nlink == 0
    assert stat.S_IMODE(about.st_mode) == 0o600
    out.append(np.ones((2, 1)))
    held = out.finished()
    assert list(tmp_path.iterdir()) == []
    assert held.sum() == 2


@given(rows=st.integers(0, 40_000), columns=st.integers(1, 5000))
def test_blocks_part_the_rows_and_none_has_few(rows, columns):
    found = list(mapped.blocks(rows, columns))
    assert [i for b in found for i in (b.start, b.stop)][1:-1:2] == [b.start for b in found[1:]]
    assert (found[0].start, found[-1].stop) == (0, rows)
    assert min(b.stop - b.start for b in found) >= min(rows, mapped.FEWEST // 2)


def test_a_block_larger_than_memory_is_halved_and_nothing_is_lost():
    table = LabelledTable(written(np.arange(9000.0).reshape(9000, 1)), np.ones(9000))
    said: list[str] = []

    def run(part: LabelledTable) -> float:
        if len(part.x) > 3000:
            raise MemoryError
        return float(part.x.sum())

    assert sum(mapped.in_blocks(table, run, said.append)) == 9000 * 8999 / 2
    assert said == [
        "a block of 9000 rows does not fit into memory; blocks of 4500 are tried",
        "a block of 4500 rows does not fit into memory; blocks of 2250 are tried",
    ]


def test_without_memory_for_the_smallest_block_the_error_stays():
    def run(_: object) -> float:
        raise MemoryError

    with pytest.raises(MemoryError):
        list(mapped.in_blocks(LabelledTable(written(np.ones((2000, 1))), np.ones(2000)), run, len))


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("500MB", 500 * 2**20), ("1.5 GiB", 1.5 * 2**30), ("8k", 8192)]
)
def test_the_setting_is_a_size(monkeypatch, text, size):
    monkeypatch.setenv(mapped.SETTING, text)
    assert mapped.allowed() == size
    assert mapped.is_large(10**9, 100)


def test_by_default_half_of_the_free_memory_is_allowed(monkeypatch):
    monkeypatch.delenv(mapped.SETTING, raising=False)
    monkeypatch.setattr(mapped, "free", lambda: 8e9)
    assert mapped.allowed() == 4e9
    assert not mapped.is_large(1_000_000, 50)
    assert mapped.is_large(10_000_000, 50)


def test_a_limit_of_the_process_counts_as_free_memory(monkeypatch):
    monkeypatch.setattr(mapped.resource, "getrlimit", lambda _: (10**6, 10**6))
    assert mapped.free() == 10**6


def test_a_setting_that_is_no_size_is_one_line(monkeypatch):
    monkeypatch.setenv(mapped.SETTING, "much")
    with pytest.raises(ValueError, match="FEDCOHORT_MEMORY is 'much'"):
        mapped.allowed()
