"""Models that sites keep: of a fit with a model for each site (`user: all`), never sent.

A site's step finishes the model and leaves it in the site's state. `keeper` turns that state, with
the call's preprocessing, into an ordinary saved model: at a node in its own folder, in a simulation
in the run's. A site judges by it (`study.at_site.keeping`), and `fedcohort predict` applies it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.prepare import Design
from fedcohort.protocol import Method
from fedcohort.protocol.host import Call
from fedcohort.study.results import saved
from fedcohort.study.results.saved import Saved

#: Folder of the sites' own models below an arm's, in a simulation.
OF_SITES = "sites"

#: Takes a call, its arguments and the state that its step left at the site.
Keeper = Callable[[Call, Mapping[str, Any], Mapping[str, Array]], None]


def folder_of(site: str) -> str:
    """Return a site's name as the name of a folder."""
    name = "".join(f"%{ord(c):02X}" if c in '%/\\:*?"<>|' else c for c in site)
    return name.replace(".", "%2E") if name.startswith(".") else name


class OwnModels:
    """Saved models by name, each whole or not at all.

    Parameters
    ----------
    folder : where they are, a folder each; None: in memory.
    writing : context in which a model is written, such as one that names a full disk.
    noted : called with the name of a model that is kept.
    """

    def __init__(
        self,
        folder: Path | None = None,
        writing: Callable[[], AbstractContextManager[None]] = nullcontext,
        noted: Callable[[str], None] = lambda name: None,
    ):
        self._folder, self._writing, self._noted = folder, writing, noted
        self._held: dict[str, Saved] = {}

    def keep(self, name: str, parts: Saved) -> None:
        """Keep a model under a name, a relative path; it replaces one of that name."""
        if self._folder is None:
            self._held[name] = parts
        else:
            with self._writing():
                self._write(self._folder, name, parts)
        self._noted(name)

    def _write(self, folder: Path, name: str, parts: Saved) -> None:
        place, fresh = folder / name, folder / ".new" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(fresh, ignore_errors=True)
        files = saved.write(fresh, parts)
        for file in files:
            with (fresh / file).open("rb") as written:
                os.fsync(written.fileno())
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in files:
            (fresh / file).chmod(0o600)
            os.replace(fresh / file, place / file)
        shutil.rmtree(folder / ".new", ignore_errors=True)

    def find(self, name: str) -> Saved | None:
        """Return the model of a name; None if there is none."""
        if self._folder is None:
            return self._held.get(name)
        place = self._folder / name
        return saved.read(place) if (place / "model.json").is_file() else None

    def drop(self, name: str) -> None:
        """Remove the model of a name, and those below it."""
        for held in [n for n in self._held if n == name or n.startswith(f"{name}/")]:
            del self._held[held]
        if self._folder is not None:
            shutil.rmtree(self._folder / name, ignore_errors=True)


def keeper(
    method: Method,
    site: str,
    dictionary: Dictionary,
    notes: Mapping[str, Any],
    keep: Callable[[Saved], None],
) -> Keeper | None:
    """Return what keeps a site's finished model; None if the method leaves none.

    Parameters
    ----------
    dictionary, notes : of the saved model.
    keep : takes the model before the step's reply leaves.
    """
    made = method.own_model
    if made is None:
        return None

    def kept(call: Call, arguments: Mapping[str, Any], left: Mapping[str, Array]) -> None:
        design = call.view
        if not isinstance(design, Design):
            return
        model = made(site, design, arguments, left)
        if model is not None:
            keep(Saved.of(method.name, model, design, dictionary, notes))

    return kept
