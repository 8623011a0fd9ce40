"""The sample's columns in three views, of which a hospital lacks the last."""

from __future__ import annotations

from pathlib import Path

import yaml

VIEWS = {"patient": ("age", "menostat"), "tumour": ("tsize", "tgrade", "pnodes"),
         "receptors": ("progrec", "estrec")}  # fmt: skip
LACKED = list(VIEWS["receptors"])


def name_views(dictionary: Path) -> None:
    """Write the views into a dictionary of the sample."""
    content = yaml.safe_load(dictionary.read_text())
    for view, names in VIEWS.items():
        for name in names:
            content["variables"][name]["view"] = view
    dictionary.write_text(yaml.safe_dump(content, sort_keys=False))
