"""No module of the package needs itself through others, not even inside a function or for types."""

from __future__ import annotations

import grimp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


def cycles() -> set[tuple[str, ...]]:
    """Return the groups of modules that import each other; imports of all kinds count."""
    graph = grimp.build_graph("fedcohort", cache_dir=None)
    names = sorted(graph.modules)
    at = {name: i for i, name in enumerate(names)}
    edges = [
        (at[name], at[other])
        for name in names
        for other in graph.find_modules_directly_imported_by(name)
    ]
    rows, columns = zip(*edges, strict=True)
    links = coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(names), len(names)))
    _, group = connected_components(links, connection="strong")
    found = [np.flatnonzero(group == g) for g in np.flatnonzero(np.bincount(group) > 1)]
    return {tuple(names[i].removeprefix("fedcohort.") for i in one) for one in found}


def test_no_modules_import_each_other():
    assert cycles() == set()
