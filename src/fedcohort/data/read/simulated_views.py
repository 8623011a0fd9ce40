"""Simulated rows with several views and two groups, as in a paper's synthetic data.

Balelli, Silva, Lorenzi, "A differentially private probabilistic framework for modeling the
variability across federated datasets of heterogeneous multi-view observations", 2022, section 4.1.
All views of a row come from one point of a latent space, eq. (1) there:

    t^(k) = W^(k) (x + s v) + μ^(k) + ε^(k),   x ~ N(0, I_q),   ε^(k) ~ N(0, σ^(k)² I)

with s = 1 for the rows of a second group, chosen at random, and s = 0 for the others. The paper
does not give the distributions of W, μ, σ and v. Here, from one seed:

    W^(k), μ^(k)   independent standard normals
    σ^(k)          uniform between two limits, one draw a view
    v              of a given length, its direction uniform on the sphere

The length is 8 standard deviations of x, because a linear discriminant of the latent space
separates the groups without error in the paper (table 6, IID). The rows hold no real patient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol.errors import SettingError

#: Column of the group, and the groups' names.
GROUP, GROUPS = "group", ("1", "2")
#: Values are rounded to this many decimals, so that all machines give the same table.
DECIMALS = 6


def multiview(
    n: int = 400,
    dims: Sequence[int] = (15, 8, 10),
    q: int = 5,
    shifted: int = 250,
    seed: int = 0,
    noise: tuple[float, float] = (0.1, 0.5),
    distance: float = 8.0,
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Draw rows of several views. The defaults are the sizes of the paper.

    Parameters
    ----------
    n : number of rows.
    dims : d_1, …, d_K, columns of each view.
    q : dimension of the latent space.
    shifted : number of rows in the second group.
    noise : lowest and highest σ^(k), in the unit of the values.
    distance : length of v, in standard deviations of x.

    Returns
    -------
    frame : n rows; columns v1_01, …, of the views in order, and `GROUP` with `GROUPS` as text.
    views : v1, …, vK, each with its columns.

    Raises
    ------
    SettingError : a size is below 1, `shifted` exceeds n, or the limits of σ are negative or
        descend.
    """
    rules = (
        ("n", n, n >= 1, "1 or more"),
        ("dims", dims, len(dims) >= 1 and min(dims, default=0) >= 1, "a view or more of columns"),
        ("q", q, q >= 1, "1 or more"),
        ("shifted", shifted, 0 <= shifted <= n, f"from 0 to the {n} rows"),
        ("noise", noise, 0 <= noise[0] <= noise[1], "two ascending numbers from 0"),
    )
    for name, value, fine, wanted in rules:
        if not fine:
            raise SettingError(f"{name} is {value!r}; give {wanted}.")
    rng = np.random.default_rng((seed, 0x76696577))
    direction = rng.normal(size=q)
    second = np.zeros(n, bool)
    second[rng.permutation(n)[:shifted]] = True
    x = rng.normal(size=(n, q))
    x += second[:, None] * distance * direction / np.linalg.norm(direction)
    columns: dict[str, object] = {}
    views: dict[str, list[str]] = {}
    for k, d in enumerate(dims, 1):
        w, mean, sd = rng.normal(size=(d, q)), rng.normal(size=d), rng.uniform(*noise)
        t = np.round(x @ w.T + mean + sd * rng.normal(size=(n, d)), DECIMALS)
        views[f"v{k}"] = [f"v{k}_{j:0{max(2, len(str(d)))}d}" for j in range(1, d + 1)]
        columns |= dict(zip(views[f"v{k}"], t.T, strict=True))
    columns[GROUP] = np.where(second, *GROUPS[::-1]).astype(object)
    return pd.DataFrame(columns), views


def dictionary_of(views: Mapping[str, Sequence[str]]) -> Dictionary:
    """Return the dictionary of such rows: numbers with their view, and the group, no feature.

    The usual range follows from the distribution, not from the rows: with q = 5, a value of a
    shifted row has variance 5 + 8² + 1 and some noise over all draws, so ± 20 holds nearly all.
    """
    variables: dict[str, object] = {
        name: {"type": "number", "usual": [-20, 20], "view": view}
        for view, names in views.items()
        for name in names
    }
    variables[GROUP] = {
        "type": "category", "levels": list(GROUPS), "feature": False,
        "description": "2 where the row was shifted in the latent space",
    }  # fmt: skip
    return Dictionary.from_dict(
        {
            "title": "Simulated views of two groups",
            "description": "rows with three views of one latent space of five dimensions, drawn as "
            "the synthetic data of Balelli et al. (2022); 250 of 400 are shifted, and nobody is in "
            "them.",
            "licence": "Drawn by fedcohort; free of any rights.",
            "variables": variables,
        }
    )
