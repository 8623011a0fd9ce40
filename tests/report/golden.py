"""Finished runs of each kind of task, and what their pages say as lines of text.

After a change of words that was meant, `python tests/report/golden.py [PAGE …]` (with src and tests
on PYTHONPATH) writes the lines again; the diff of `tests/report/golden` then shows which.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fedcohort.report import comparing, page
from fedcohort.report.comparison import Comparison
from fedcohort.report.run import read
from report import grouped, latents, synthetic

HERE = Path(__file__).parent / "golden"
#: Elements that are a line each; what is inside is its text.
LINES = frozenset("h1 h2 h3 p li dt dd summary caption a".split())
#: Noise for a made-up run: δ, what was spent, and the replies that were counted.
NOISY = {
    "privacy": {"min_cell": 5, "dp": {"epsilon": 4.0, "delta": 1e-5, "unit": "record"}},
    "releases": {"exact": [{"step": "loss_gradient", "mechanism": "gaussian", "count": 30,
                            "noise": 1.7, "sampling": 0.2}]},
    "claims": {"exact": "ε 1"},
    "measured": {"by": "codecarbon", "energy": 0.01, "carbon": 4.0, "country": "NOR",
                 "seconds": 9},
    "governance": {"purpose": "Care", "ethics": "2026/1"},
}  # fmt: skip


def finished(name: str, folder: Path) -> Path:
    """Return the folder of a finished run that is kept here."""
    with tarfile.open(HERE / f"{name}.tar.xz") as kept:
        kept.extractall(folder / name, filter="data")
    return folder / name


def _kept(name: str) -> Callable[[Path], str]:
    return lambda folder: page.render(read(finished(name, folder)))


def _compared(folder: Path) -> str:
    places = [finished(name, folder) for name in ("network", "process")]
    return comparing.render(Comparison.of(places))


def _noisy(folder: Path) -> str:
    made = synthetic.make(folder, scenarios=("iid", "by-outcome"), repeats=2, change=NOISY)
    run = read(made)
    for row in run.results["arms"]:
        row["epsilon"] = 2.0 if row["arm"] == "exact" else None
    return page.render(run)


#: Pages by name, each made in a folder of its own.
PAGES: Mapping[str, Callable[[Path], str]] = {
    **{name: _kept(name) for name in (
        "survival", "classification", "regression", "counts", "clustering", "classes", "latent",
        "network", "personal",
    )},
    "compare": _compared,
    "made-survival": _noisy,
    "made-clustering": lambda folder: page.render(read(grouped.make(folder, umap=True))),
    "made-latent": lambda folder: page.render(read(latents.make(folder))),
}  # fmt: skip


def lines(text: str) -> list[str]:
    """Return what a page says: headings, cells, figures with their data, links, in order."""
    text = text.removeprefix("<!DOCTYPE html>\n").replace(" checked/>", ' checked="checked"/>')
    root = ET.fromstring(text)
    found = [f"title: {root.findtext('head/title')}"]
    for part in root.find("body/main") or ():
        found += _lines(part)
    return found


def _lines(node: ET.Element) -> Iterator[str]:
    """Yield an element's lines, each with its tag and class."""
    name = ".".join(filter(None, (node.tag, *node.get("class", "").split())))
    name += f"#{node.get('id')}" if node.get("id") else ""
    if node.tag == "svg":
        if "key" not in node.get("class", ""):
            yield f"{name}: {_drawn(node)}"
    elif node.tag == "tr":
        yield f"{name}: {' | '.join(_cell(c) for c in node)}"
    elif node.get("download"):
        yield f"{name}: {node.get('download')} {_file(str(node.get('href')))}"
    elif node.tag == "pre":
        yield f"{name}: {_digest(''.join(node.itertext()).splitlines())}"
    elif node.tag in LINES:
        yield f"{name}: {_text(node)}"
        yield from (line for inner in node.iter("a") if inner is not node for line in _lines(inner))
    else:
        if node.tag in ("section", "figure", "details", "table") or node.get("class"):
            yield name
        if node.text and node.text.strip():
            yield f"text: {node.text.strip()}"
        for child in node:
            yield from _lines(child)


def _text(node: ET.Element) -> str:
    """Return an element's text, with a link's target and what is bold."""
    own = f" → {node.get('href')}" if node.get("href", "").startswith("#") else ""
    bold = "".join(f" [bold: {' '.join(''.join(b.itertext()).split())}]" for b in node.iter("b"))
    return " ".join("".join(node.itertext()).split()) + own + bold


def _cell(cell: ET.Element) -> str:
    inner = "".join(f" [{e.tag}.{e.get('class')}]" for e in cell.iter("span") if e.get("class"))
    return f"{'>' if cell.get('class') == 'n' else ''}{_text(cell)}{inner}"


def _drawn(svg: ET.Element) -> str:
    """Return a drawing's description, and a digest of the texts in it."""
    texts = sorted("".join(t.itertext()) for t in svg.iter("text"))
    told = [str(svg.findtext(name)) for name in ("title", "desc")]
    return f"{' | '.join(told)} {_digest(texts)}"


def _file(address: str) -> str:
    """Return how many rows and columns a file has, and a digest; of a picture its texts'."""
    kind, _, coded = address.partition(";")
    blob = base64.b64decode(coded.rpartition(",")[2]).decode("utf-8-sig")
    if "svg" in kind:
        space = "{http://www.w3.org/2000/svg}"
        texts = ["".join(t.itertext()) for t in ET.fromstring(blob).iter(f"{space}text")]
        return _digest(sorted(texts))
    rows = list(csv.reader(io.StringIO(blob)))
    return f"{','.join(rows[0])}: {len(rows) - 1} rows, {_digest(blob.splitlines())}"


def _digest(parts: list[str]) -> str:
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]
    return f"{len(parts)} lines {digest}"


if __name__ == "__main__":
    import sys
    import tempfile

    for key in sys.argv[1:] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            said = "\n".join(lines(PAGES[key](Path(folder))))
        (HERE / f"{key}.txt").write_text(f"{said}\n", "utf-8")
