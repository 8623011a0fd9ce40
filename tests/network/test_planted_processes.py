"""Patients' strings and numbers, planted in the tables of real nodes, are nowhere outside them.

Three nodes, a coordinator and leads are processes over FLARE. Strings that stand nowhere else are
in every column that a table may have, and in tables that fail; a column of the model holds numbers
with 15 digits. Searched afterwards: every file of the coordinator's kit, of the lead's kit and its
results, what all processes printed, the nodes' own logs and ledgers, and every body of a message
before it is sealed and after it was opened, which a file that the tests alone ask for keeps.

It takes long, and so runs by `make chaos`; `test_planted` has the same claims over one node in this
process, and `benchmarks/scorecard/planted_strings.py` over a network without FLARE.

A number of a patient leaves nowhere as it is. Legitimate, and so not planted: what a sum over
several patients gives, ends of intervals, and rounded quantiles.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nvflare")

from network.parties import SITES, Parties, shares

STUDY = {
    "study": "planted", "task": "survival", "seed": 11,
    "data": {"source": "t.csv", "dictionary": "dictionary.yaml",
             "outcome": {"time": "time", "event": "cens"}},
    "preprocess": {"scale": "standard"},
    "arms": [{"method": "cox"}, {"method": "deepcox", "rounds": 3, "hidden": [4]}],
    "bounds": ["isolated"],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}  # fmt: skip
#: Columns of the model whose values are planted, and how many digits they have.
NUMBERS, DIGITS = ("progrec", "estrec"), 15
_numbers = itertools.count(1)


class Planted:
    """Tables with planted strings and numbers."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self.numbers: list[float] = []

    def some(self, n: int) -> list[str]:
        made = [f"Doe{next(_numbers):05d}Xq" for _ in range(n)]
        assert made[-1].startswith("Doe0")  # what `strings_in` looks for first
        self.strings += made
        return made

    def table(self, frame: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Return a table that fits, with columns beside the study's, one of them called so."""
        n, rng = len(frame), np.random.default_rng(seed)
        frame = frame.assign(**{c: rng.normal(100, 30, n) for c in NUMBERS})
        for c in NUMBERS:
            self.numbers += frame[c].tolist()
        extra = {"name": self.some(n), "note": self.some(n), self.some(1)[0]: self.some(n)}
        return frame.assign(**extra, ward=self.some(1)[0])


def broken(planted: Planted, frame: pd.DataFrame, how: str) -> str:
    """Return a table that cannot be read or does not fit, as text."""
    if how == "text among numbers":
        frame = frame.astype({"age": object})
        frame.loc[frame.index[:9], "age"] = planted.some(9)
    elif how == "levels":
        frame.loc[frame.index[:9], "tgrade"] = planted.some(9)
    rows = frame.to_csv(index=False).splitlines()
    if how == "rows":
        rows[5:5] = ['"{}"{},{}\0'.format(*planted.some(3)), ",".join(planted.some(30))]
    return "\n".join(rows)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory):
    """Return what was planted, and everything that is outside the tables, by name."""
    folder = tmp_path_factory.mktemp("planted") / "n"
    planted = Planted()
    tables = {n: planted.table(t, i) for i, (n, t) in enumerate(shares(SITES).items())}
    wire = folder / "wire"
    with Parties(folder, tables=tables) as net:
        wire.mkdir()
        text = (net.config("north").parent / "dictionary.yaml").read_text()
        for column in NUMBERS:
            text = text.replace(f"{column}: {{type: integer", f"{column}: {{type: number")
        for place in (folder, *(net.config(n).parent for n in SITES)):
            (place / "dictionary.yaml").write_text(text)
        for party in (net.coordinator, *net.nodes.values()):
            party.start(FEDCOHORT_TEST_WIRE=str(wire))
        net.ready()
        said = net.run(net.write("study.yaml", STUDY), "out", "--timeout", "20", seconds=90)
        assert "Traceback" not in said
        place = net.config("south").parent / "exports" / "patients.csv"
        for i, how in enumerate(("text among numbers", "levels", "rows")):
            place.write_text(broken(planted, tables["south"].copy(), how))
            lead = net.submit(net.write(f"f{i}.yaml", {**STUDY, "seed": i}), f"out-{i}")
            assert lead.wait(60) == 1, lead.text
            assert re.search(r"site 'south'", lead.text), lead.text
        printed = {f"terminal {p.name} {i}": p.text.encode() for i, p in enumerate(net.everyone)}
    places = [net.kit("coordinator"), net.kit("lead"), *folder.glob("out*")]
    places += [net.kit(name) / "state" for name in SITES]
    files = {str(p.relative_to(folder)): p.read_bytes() for p in _files(places)}
    bodies = {f"wire {p.name}": p.read_bytes() for p in _files([wire])}
    assert net.survivors == []
    return planted, {**printed, **files, **bodies}, bodies


def _files(places: list[Path]) -> list[Path]:
    return [p for place in places for p in sorted(place.rglob("*")) if p.is_file()]


def test_the_messages_of_a_whole_study_were_kept(told):
    """Else the tests below would look at nothing."""
    _, everything, bodies = told
    assert len(bodies) >= 4
    assert sum(map(len, bodies.values())) > 200_000
    assert any(b"death_moments" in blob for blob in bodies.values())
    for name in ("ledger.jsonl", "out/results.json", "log.txt", "coordinator.log"):
        assert any(name in key for key in everything), sorted(everything)


def strings_in(blob: bytes, planted: Planted) -> list[str]:
    """Return the planted strings in some bytes, each once, in any case and encoding."""
    low = blob.lower()
    codes = [c for c in ("utf-8", "utf-16-le", "utf-16-be") if "doe0".encode(c) in low]
    return [t for t in planted.strings if any(t.lower().encode(c) in low for c in codes)]


def numbers_in(blob: bytes, planted: Planted) -> bool:
    """Return whether a planted number is in some bytes: eight bytes of either order, or text."""
    values = np.array(planted.numbers)
    for dtype in ("<f8", ">f8"):
        wanted = set(values.astype(dtype).view("S8").tolist())
        for shift in range(8):
            part = blob[shift : shift + (len(blob) - shift) // 8 * 8]
            if wanted & set(np.frombuffer(part, "S8").tolist()):
                return True
    texts = {f"{v:.12f}"[:10].encode() for v in values}
    return bool(texts & {m[0][:10] for m in re.finditer(rb"-?\d{1,3}\.\d{7,}", blob)})


def test_no_planted_string_is_outside_the_tables(told):
    planted, everything, _ = told
    assert len(planted.strings) > 2000
    assert {name: len(strings_in(blob, planted)) for name, blob in everything.items()} == (
        dict.fromkeys(everything, 0)
    )


def test_no_planted_number_is_outside_the_tables(told):
    planted, everything, _ = told
    assert len(set(planted.numbers)) > 1000
    assert [name for name, blob in everything.items() if numbers_in(blob, planted)] == []


@pytest.mark.parametrize("last", [b"\0", b"\1"])
def test_what_is_looked_for_would_be_found(last):
    """In any bytes, each in its own way; behind a zero byte, UTF-16 is both of its orders."""
    planted = Planted()
    planted.table(shares(SITES)["south"], 5)
    blob = np.random.default_rng(8).bytes(99_999) + last
    assert strings_in(blob, planted) == []
    assert not numbers_in(blob, planted)
    value, text = planted.numbers[7], planted.strings[7]
    for shift in range(3):
        for part in (np.float64(value).tobytes(), np.array(value, ">f8").tobytes(),
                     repr(value).encode()):  # fmt: skip
            at = len(blob) // 2 + shift
            assert numbers_in(blob[:at] + part + blob[at:], planted)
    for code in ("utf-8", "utf-16-le", "utf-16-be"):
        assert strings_in(blob + text.upper().encode(code), planted) == [text]
