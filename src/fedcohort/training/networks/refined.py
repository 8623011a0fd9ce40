"""Images made of a table's columns before a training (REFINED): one map for all sites.

Bazgir et al., Nature Communications 11, 4391, 2020; in a federation Nolte et al., Bioinformatics
Advances 3(1), 2023. The columns of each view become one image; columns without a view are one more.
`numerics.refined` places them by their correlations, which come from

    sums           Σ z and Σ z zᵀ of the columns of each view, z = x − centre, over all sites
    coordinator    the coordinator's own rows, those of the first model, as in the paper; a site
                   that trains alone and has none uses its own

The map is part of the network's spec: sites receive it in the plan, and it is saved with the model.

Cross-products can be sums over few records, so the checks of an exact fit come first
(`data.exact`), and after them that no column differs from others of its view in few records.

Revealed: of sums `data.exact` and `ColumnProducts`, each once, as a sum over all sites. The map
tells all sites, and readers of the model, which columns are alike: of the coordinator's rows
without noise, too. `likeness`, the mean correlation with neighbours, has two digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data import exact
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics import refined
from fedcohort.protocol import (
    DataError,
    Federation,
    NothingToLearn,
    Row,
    SettingError,
    Site,
    Task,
    message,
    summed,
)
from fedcohort.training.networks.fits import StagedModel

#: What leaves a site for a map from sums, in plain words.
REVEALS = (
    "once, over several sites, how many records differ in each column, and how far, and the "
    "cross-products of the columns of each view, as sums over sites"
)
#: What others learn of the coordinator's rows.
SHOWN = "all sites learn which columns are alike in the coordinator's own rows"


@message
class ColumnProducts:
    """Number of rows (), Σ z (p,), and Σ z zᵀ of each view's columns, one after the other."""

    rows: Array
    total: Array
    inner: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        view = np.asarray(asked["view"])
        size = int((np.bincount(view) ** 2).sum())
        if self.total.shape != view.shape or self.inner.shape != (size,):
            return "another number of products than of columns."
        return ""


@summed
def column_products(
    site: Site[LabelledTable, None], *, centre: Array, view: Array
) -> ColumnProducts:
    """Sum the cross-products of the columns of each view, about the same centre at all sites.

    centre : (p,). view : (p,), the number of each column's view.
    """
    z = site.data.x - centre
    inner = [(z[:, of].T @ z[:, of]).ravel() for of in _members(view)]
    return ColumnProducts(np.array(len(z)), z.sum(axis=0), np.concatenate(inner))


#: Steps of a map from sums.
STEPS = (*exact.STEPS, column_products)
#: What these give to arguments of steps (`Method.bounds`).
BOUNDS = {"link": ("",), "kinds": (False,)}


@dataclass(frozen=True)
class Image:
    """The columns of one view as an image.

    Attributes
    ----------
    view : its name; "" of columns without one.
    columns : (k,), their numbers in x.
    pixels : (k,), the pixel of each, row by row.
    side : of the image.
    likeness : (k,), mean correlation with the columns in pixels around; NaN without any.
    """

    view: str
    columns: Array
    pixels: Array
    side: int
    likeness: Array

    @property
    def map(self) -> tuple[int, ...]:
        """The column of each pixel (side²,); −1 of an empty one."""
        found = np.full(self.side**2, -1)
        found[self.pixels] = self.columns
        return tuple(found.tolist())


def reveals(source: str) -> str:
    """Return what is revealed for a map, in plain words, to be added to a list."""
    return {"sums": f"; {REVEALS}", "coordinator": f"; {SHOWN}"}.get(source, "")


def images(fed: Federation, source: str, task: Task) -> tuple[Image, ...]:
    """Return the image of each view; () if the source of the map is "none".

    Parameters
    ----------
    source : the setting `refined`.

    Raises
    ------
    DataError : there are no columns.
    NothingToLearn : a column singles out few records, or there are fewer than `min_cell`.
    SettingError : the coordinator has no rows of its own; or the fit is private.
    SiteUnavailable : a site left between two sums.
    """
    if source == "none":
        return ()
    views = _views(task)
    own = task.own.first if task.own is not None else None
    if source == "coordinator" and own is not None:
        mean = own.x.mean(axis=0)
        blocks = [_inner(own.x[:, of] - mean[of]) for of in _members(views)]
        return _placed(task, views, blocks, len(own.x), mean)
    if source == "coordinator" and len(fed.sites) > 1:
        raise SettingError(
            "setting 'refined' is 'coordinator', and the coordinator has no rows for a first "
            "model. Give it some (coordinator_data), or take refined: sums."
        )
    sites = exact.exact_sums(fed, task, "number")
    centre = np.zeros(len(views)) if task.origin is None else np.asarray(task.origin, float)
    sums = sites.sum(column_products, centre=centre, view=views)
    n = float(sums.rows)
    if n < max(sites.least, 2):
        raise NothingToLearn(
            f"there are fewer than {max(sites.least, 2)} records at all sites together, too few to "
            f"tell which columns are alike. Add sites or records."
        )
    shift = sums.total / n
    blocks: list[Array] = []
    whole = np.zeros((len(views), len(views)))
    start = 0
    for of in _members(views):
        stop = start + len(of) ** 2
        block = sums.inner[start:stop].reshape(len(of), len(of))
        block = block - n * np.outer(shift[of], shift[of])
        whole[np.ix_(of, of)] = block
        blocks.append(block)
        start = stop
    sites.related(whole, centre + shift)
    return _placed(task, views, blocks, n, shift + centre)


def _inner(z: Array) -> Array:
    return z.T @ z


def _views(task: Task) -> Array:
    """Return the number of each column's view (p,), in the order of their first columns."""
    if not task.features:
        raise DataError("there are no columns to make an image of; name at least one.")
    names = task.views or ("",) * len(task.features)
    order = list(dict.fromkeys(names))
    return np.array([order.index(name) for name in names])


def _members(views: Array) -> list[Array]:
    """Return the columns of each view."""
    return [np.flatnonzero(views == k) for k in range(views.max(initial=-1) + 1)]


def _placed(
    task: Task, views: Array, blocks: Sequence[Array], rows: float, mean: Array
) -> tuple[Image, ...]:
    """Return the images from the cross-products of each view's columns, about their means."""
    found: list[Image] = []
    for of, inner in zip(_members(views), blocks, strict=True):
        corr = refined.correlations(inner, rows, mean[of])
        side = refined.side_of(len(of))
        pixels = refined.refine(refined.distances(corr), side).pixels
        near = refined.likeness(corr, pixels, side).round(2)
        name = task.views[of[0]] if task.views else ""
        found.append(Image(name, of, pixels, side, near))
    return tuple(found)


def told(images: Sequence[Image], features: int) -> dict[str, Any]:
    """Return what a model of so many columns keeps of its images (`MappedModel`)."""
    likeness = np.full(features if images else 0, np.nan)
    for image in images:
        likeness[image.columns] = image.likeness
    return {"views": tuple(image.view for image in images), "likeness": likeness}


@dataclass(frozen=True, kw_only=True, eq=False)
class MappedModel(StagedModel):
    """A fitted network that may see images of its columns.

    Attributes
    ----------
    features : names of the columns of x, in order, (p,).
    network : its spec.
    views : of each image made of columns; () without such images, or unknown.
    likeness : mean correlation of each column with its neighbours there, (p,); (0,) if unknown.
    """

    features: tuple[str, ...]
    network: str
    views: tuple[str, ...] = ()
    likeness: Array = field(default_factory=lambda: np.zeros(0))

    def maps(self) -> list[Row]:
        """Return the images made of the columns."""
        return _rows(self.network, self.features, self.views, self.likeness)

    @property
    def map_arrays(self) -> dict[str, Array]:
        """Arrays of the maps, to save."""
        return {"likeness": self.likeness} if len(self.likeness) else {}

    @property
    def map_meta(self) -> dict[str, Any]:
        """Other values of the maps, to save."""
        return {"views": list(self.views)} if self.views else {}

    @staticmethod
    def map_of(arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of saved maps."""
        found = {"likeness": arrays["likeness"]} if "likeness" in arrays else {}
        return {"views": tuple(meta.get("views", ())), **found}


def _rows(
    network: str, features: Sequence[str], views: Sequence[str], likeness: Array
) -> list[Row]:
    """Return the images of a network with maps, a row for each (`Fitted.maps`)."""
    known = dict(enumerate(likeness.tolist()))
    return [
        {
            "view": views[k] if views else "",
            "side": refined.side_of(len(columns)),
            "features": [features[j] if j >= 0 else None for j in columns],
            "likeness": [None if math.isnan(r := known.get(j, math.nan)) else r for j in columns],
        }
        for k, columns in enumerate(_base(json.loads(network)).get("maps", ()))
    ]


def _base(network: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a network's spec, or of the network below a forest."""
    return network.get("base", network)


def blank(task: Task) -> tuple[tuple[int, ...], ...]:
    """Return the maps of a task whose columns lie in order, before any distance is known."""
    found: list[tuple[int, ...]] = []
    for of in _members(_views(task)) if task.features else []:
        empty = refined.side_of(len(of)) ** 2 - len(of)
        found.append((*of.tolist(), *[-1] * empty))
    return tuple(found)


@dataclass(frozen=True)
class Mapped:
    """Rule of `Method.bounds`: a plan's text whose maps place each column somewhere in its image.

    Attributes
    ----------
    rule : text of the plan with the maps of `blank`, or a function of it.
    maps : those maps.
    """

    rule: str | Callable[[object], bool]
    maps: tuple[tuple[int, ...], ...]

    def __call__(self, value: object) -> bool:
        """Return whether a value is such a text."""
        try:
            plan = json.loads(value) if isinstance(value, str) else {}
            network = json.loads(plan["network"])
            base = _base(network)
            same = [_sorted(one) for one in base["maps"]] == [sorted(one) for one in self.maps]
            if not same or _text(plan, network) != value:
                return False
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        base["maps"] = self.maps
        text = _text(plan, network)
        return self.rule(text) if callable(self.rule) else text == self.rule


def _text(plan: Mapping[str, Any], network: Mapping[str, Any]) -> str:
    """Return a plan's text with a network."""
    return json.dumps({**plan, "network": json.dumps(network, sort_keys=True)}, sort_keys=True)


def _sorted(columns: list[Any]) -> list[Any]:
    """Return columns in order; [] if one is no whole number."""
    return sorted(columns) if all(type(c) is int for c in columns) else []
