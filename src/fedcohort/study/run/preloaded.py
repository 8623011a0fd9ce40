"""Loads what the workers of a study use; the process that forks them imports this module once."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress

#: Variable with the modules to load, separated by spaces.
MODULES = "FEDCOHORT_PRELOADED"

for _name in os.environ.pop(MODULES, "").split():
    with suppress(Exception):  # a worker that needs it says why it cannot be loaded
        importlib.import_module(_name)
