"""A deep regression forest over sites, of a value or of times to an event, by any strategy.

Shen et al., "Deep regression forests for age estimation", CVPR 2018; federated in Nolte, Bazgir,
Ghosh, Pal, "Federated learning framework integrating REFINED CNN and Deep Regression Forests",
Bioinformatics Advances 3(1), 2023, section 2.3. `models.forest` has the equations. The parameter
vector θ holds the network, and behind it the leaves of all trees. In each round a site

    takes steps of its optimiser by the gradient −(1/T) Σ_trees ∇ log p(y | x; tree)        (1)
    of the network, and then `leaf_iterations` steps of variational bounding of the leaves  (2)

from the same θ at all sites, and θ is averaged, Σ_k n_k θ_k / n, leaves as network. So strategies,
personal models, monitors, and early stopping are those of all networks. A leaf's variance, or
hazard, is the mean of the sites'. In a personal model with an own last layer (section 3.5) the
leaves, which stand on that layer, are the site's own too.

With the strategy "exact", each round is one step along the gradient of the pooled loss, and (2)
takes the sums of all sites' rows: both are those of pooled training, for any split.

A value is learnt as (y − m)/s, with the pooled mean m and standard deviation s, so that its unit
does not matter; then the leaves start from the pooled moments, or from Normal(1, 1) as in the
paper. Survival leaves are ours; they start around the Kaplan-Meier curve of all rows. The risk
score is the sum of the cumulative hazard over the grid, as far as survival is known,

    risk(x) = −Σ_k log S(t_k | x),   S = (1/T) Σ_trees Σ_l μ_l S_l                           (3)

Revealed: of a value `Moments` once (`training.outcome_moments`); of survival the replies of
`data.timegrid`, and `Deaths` once (`training.hazard`); what `training.networks.fits` names; with
"exact" or a patience `training.networks.pooled`; with images made of the columns
`training.networks.refined`; with "exact" `LeafSums`, `leaf_iterations` times in each round
(`steps`). In a model or its mean, a leaf tells the mean outcome of the rows that reach it, each
with at most a share of 1/`leaf_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.algorithms.regression_forest.model import ForestModel
from fedcohort.algorithms.regression_forest.settings import ForestSettings
from fedcohort.algorithms.regression_forest.steps import settled
from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.data.exact import check_covariates
from fedcohort.models.forest import from_curve
from fedcohort.models.losses import scaled, units_of
from fedcohort.models.network import initial
from fedcohort.models.objectives import lifetimes, times_of
from fedcohort.protocol import Federation, Task
from fedcohort.training import personal
from fedcohort.training.hazard import count_deaths
from fedcohort.training.networks import fits, pooled, private_fits, refined
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.validated import begun
from fedcohort.training.outcome_moments import mean_and_spread


@dataclass(frozen=True, kw_only=True)
class Aim:
    """The outcome's scale, or grid of times.

    Attributes
    ----------
    centre, scale : m and s of a value.
    times : of survival (K,), strictly increasing; None of a value.
    least : rows of a leaf, by default.
    """

    centre: float = 0.0
    scale: float = 1.0
    times: Array | None = None
    least: float = 0.0

    @property
    def loss(self) -> str:
        """Name of the loss, for a plan."""
        if self.times is None:
            return scaled("leaves", self.centre, self.scale)
        return lifetimes(self.times)

    def plan(self, config: ForestSettings, task: Task, maps: Sequence[Sequence[int]] = ()) -> Plan:
        """Return the plan of each site.

        Parameters
        ----------
        maps : of images made of the columns (`training.networks.refined`); without, if the network
            sees such images, those of columns in order.

        Raises
        ------
        SettingError : the columns are not the image's pixels, or too few.
        """
        p = len(task.features)
        config.check_columns(p)
        if config.refined != "none":
            maps = maps or refined.blank(task)
        survival = self.times is not None
        return config.forest_plan(p, self.loss, self.least, survival=survival, maps=maps)


def aim_of(config: ForestSettings, task: Task) -> Aim:
    """Return the aim without what the sites tell; in a private fit by the outcome's usual values.

    Raises
    ------
    DataError : a private fit of an outcome without usual values.
    """
    survival, least = task.kind == "survival", float(task.min_cell)
    if task.dp is None:
        return Aim(times=np.zeros(0) if survival else None, least=least)
    low, high = task.usual
    if survival:
        return Aim(times=np.linspace(0.0, high, config.intervals + 1)[1:], least=least)
    return Aim(centre=(low + high) / 2.0, scale=(high - low) / 2.0, least=least)


def fit(fed: Federation, config: ForestSettings, task: Task) -> ForestModel:
    """Train a forest.

    Raises
    ------
    DataError : there are no covariates, too few rows, or no event.
    SettingError : the columns are not the image's pixels; or of a personal model.
    NothingToLearn : the outcome is constant.
    SiteUnavailable : a call fell below the quorum.
    """
    check_covariates(task)
    aim, known = aim_of(config, task), np.inf
    if task.dp is not None:
        plan = aim.plan(config, task)
        theta = initial(plan.network, task.seed)
        found = private_fits.train(fed, config, plan, theta, task, task.dp)
        return _model(config, task, aim, plan, found, known)
    aim.plan(config, task)  # refuse before any question
    images = refined.images(fed, config.refined, task)
    maps = [image.map for image in images]
    if len(fed.sites) == 1:
        aim = replace(aim, least=0.0)
    if aim.times is None:
        mean, spread = mean_and_spread(fed, task.min_cell)
        aim = replace(aim, centre=mean, scale=spread)
        plan = aim.plan(config, task, maps)
        theta = initial(plan.network, task.seed)
    else:
        grid = timegrid.intervals(fed, config.time_grid, config.least_cell(task.min_cell))
        known = grid.known
        aim = replace(aim, times=grid.times)
        plan = aim.plan(config, task, maps)
        theta = initial(plan.network, task.seed)
        if config.leaf_start == "moments":
            theta = from_curve(plan.network, theta, _hazards(fed, plan, grid.times))
    own, plan, theta = begun(task, plan, theta, config.schedule, counts=config.counts)
    held_out = pooled.held_out_loss(fed, plan)
    if own is not None and own.validation is not None:
        held_out = own.loss
    found = fits.train_as_set(
        fed, config, plan, theta, task, held_out=held_out, own=own,
        exact=lambda: pooled.exact(
            fed, plan, config.schedule, theta, held_out,
            after=lambda there, theta: settled(there, theta, plan),
        ),
    )  # fmt: skip
    return _model(config, task, aim, plan, found, known, images)


def _hazards(fed: Federation, plan: Plan, times: Array) -> Array:
    """Return the hazard of each interval (K,) over all sites' training rows."""
    told = fed.awaiting().sum(
        count_deaths, times=times, together=True, plan=plan.text, held_out=False
    )
    at_risk = np.cumsum(told.leaving[::-1])[::-1]
    return told.d / np.maximum(at_risk, 1.0)


def _model(
    config: ForestSettings,
    task: Task,
    aim: Aim,
    plan: Plan,
    found: fits.Trained,
    known: float,
    images: Sequence[refined.Image] = (),
) -> ForestModel:
    model = ForestModel(
        features=task.features,
        network=plan.network,
        thetas=found.thetas,
        weights=found.weights,
        centre=aim.centre,
        scale=aim.scale,
        times=np.zeros(0) if aim.times is None else _kept(aim.times, known),
        rounds=found.rounds,
        every=config.every,
        **refined.told(images, len(task.features)),
    )
    kept = {r: replace(model, thetas=thetas, rounds=r) for r, thetas in found.kept.items()}
    return replace(model, kept=kept)


def _kept(times: Array, known: float) -> Array:
    """Return the times up to `known`, to which survival is estimated; one at least."""
    return times[: max(1, int((times <= known).sum()))]


def own_model(
    site: str, design: Any, asked: Mapping[str, Any], left: Mapping[str, Array]
) -> ForestModel | None:
    """Return the model that a step has finished at a site (`Method.own_model`)."""
    own = personal.Own.finished(left)
    if own is None:
        return None
    plan = Plan.of(asked["plan"])
    times = times_of(plan.loss)
    _, centre, scale = units_of(plan.loss) if not len(times) else ("", 0.0, 1.0)
    return ForestModel(
        features=design.features,
        network=plan.network,
        thetas=own.model[None],
        weights=fits.ONE,
        centre=centre,
        scale=scale,
        times=_kept(times, float(times[-2]) if len(times) > 1 else np.inf),
        rounds=0,
    )
