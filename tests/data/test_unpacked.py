"""A compressed table that is a bomb is one line, before it fills the memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zipfile

import pandas as pd
import pytest

from fedcohort.data.read import csvfile
from fedcohort.protocol import DataError

TABLE = b"x,y\n" + b"1,2\n" * 50_000


def packed(folder, suffix, body=TABLE):
    path = folder / f"t.csv{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", body)
    else:
        pack = {".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix]
        path.write_bytes(pack.compress(body))
    return path


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zip"])
def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, suffix, monkeypatch):
    path = packed(tmp_path, suffix)
    assert len(csvfile.read_csv(path)) == 50_000
    monkeypatch.setattr(csvfile, "UNPACKED", 100_000)
    if path.stat().st_size * csvfile.RATIO >= len(TABLE):
        monkeypatch.setattr(csvfile, "RATIO", 10)
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))} has .* unpacks to more than "):
        csvfile.read_csv(path)


def test_a_bomb_is_read_no_further_than_it_may_unpack(tmp_path, monkeypatch):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(bytes(1 << 20)) * 1000)  # a gibibyte
    monkeypatch.setattr(csvfile, "UNPACKED", 1 << 25)
    monkeypatch.setattr(csvfile, "RATIO", 1)
    with pytest.raises(DataError, match=r"unpacks to more than 33,554,432\. If it is"):
        csvfile.read_csv(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zip"])
def test_a_damaged_archive_is_one_line(tmp_path, suffix):
    path = packed(tmp_path, suffix)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"cannot be read \(\w+\)\. Is the file whole\?$"):
        csvfile.read_csv(path)


def test_a_table_that_packs_well_is_read(tmp_path):
    """Rows that are all alike pack to a thousandth."""
    path = packed(tmp_path, ".gz")
    assert path.stat().st_size * 100 < len(TABLE)
    assert csvfile.read_csv(path).equals(pd.DataFrame({"x": [1] * 50_000, "y": [2] * 50_000}))
