"""A neural network over sites for classes, values or counts, by any strategy.

Rumelhart, Hinton, Williams, "Learning representations by back-propagating errors", Nature 323,
1986; of images LeCun et al. 1998 (`models.conv`). The network is dense, or convolutional where the
columns are an image's pixels, or are made such (`training.networks.refined`). The loss is a mean
over rows, with penalties on the weights W of the first layer:

    L(θ) = (1/n) Σ_j l(y_j, f_θ(x_j)) + λ₁‖W‖₁ + ½λ₂‖W‖²                                      (1)

    two classes       l = log(1 + e^f) − y f
    K classes         l = −log softmax(f)_y, with an output for each class
    value             l = ½(f − (y − m)/s)², with the pooled mean m and standard deviation s
    count             l = e^f − (y/m) f, with the pooled mean m

The loss of each row does not depend on the others, so the sum of the sites' gradients is that of
the pooled table, for any split: with the strategy "exact" a fit takes the steps of pooled training.
The other strategies train at the sites (`training.networks.strategies`).

Revealed: once `Sizes` (`steps`) or `Moments` (`training.outcome_moments`), and what
`training.networks.fits` names; with "exact" or a patience `training.networks.pooled`; with images
made of the columns `training.networks.refined`; a private fit only `training.private`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedcohort.algorithms.neural.model import NeuralModel
from fedcohort.algorithms.neural.settings import NeuralSettings
from fedcohort.arrays import Array
from fedcohort.data.classes import check_each_class
from fedcohort.data.exact import check_covariates
from fedcohort.models.losses import scaled, several, units_of
from fedcohort.models.network import initial
from fedcohort.protocol import Federation, Task
from fedcohort.training import personal
from fedcohort.training.class_sizes import count_each_class
from fedcohort.training.networks import fits, pooled, private_fits, refined
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.validated import begun
from fedcohort.training.outcome_moments import mean_and_spread


@dataclass(frozen=True, kw_only=True)
class Aim:
    """Model of the outcome, and the scale on which it is learnt.

    Attributes
    ----------
    model : logistic, softmax, linear or poisson.
    centre, scale : m and s of a value; 0 and m of a count; 0 and 1 of classes.
    outputs : of the network.
    absent : classes without a record.
    """

    model: str
    centre: float = 0.0
    scale: float = 1.0
    outputs: int = 1
    absent: tuple[str, ...] = ()

    def plan(self, config: NeuralSettings, task: Task, maps: Sequence[Sequence[int]] = ()) -> Plan:
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
        if self.model == "softmax":
            loss = several(self.outputs)
        else:
            loss = scaled(self.model, self.centre, self.scale)
        plan = config.plan(p, loss, self.outputs, maps)
        if task.dp is not None and task.dp.unit == "record":
            return replace(plan, batch_size=0, batches=config.private_batches)
        return plan


def classes_of(task: Task) -> tuple[str, ...]:
    """Return the classes of the outcome; 0 and 1 of an outcome without names."""
    return task.levels or ("0", "1")


def aim_of(task: Task) -> Aim:
    """Return the aim without what the sites tell; in a private fit by the outcome's usual values.

    Raises
    ------
    DataError : a private fit of an outcome without usual values.
    """
    if task.kind == "classification":
        k = len(classes_of(task))
        several = task.outcome not in ("", "binary")
        return Aim(model="softmax", outputs=k) if several else Aim(model="logistic")
    model = "poisson" if task.outcome == "count" else "linear"
    if task.dp is None:
        return Aim(model=model)
    low, high = task.usual
    if model == "poisson":
        return Aim(model=model, scale=max((low + high) / 2.0, 1.0))
    return Aim(model=model, centre=(low + high) / 2.0, scale=(high - low) / 2.0)


def fit_classifier(fed: Federation, config: NeuralSettings, task: Task) -> NeuralModel:
    """Train a network of classes.

    Raises
    ------
    DataError : there are no covariates.
    SettingError : the columns are not the image's pixels; or of a personal model.
    NothingToLearn : one class only, or a class of few records.
    SiteUnavailable : a call fell below the quorum.
    """
    aim = aim_of(task)
    if task.dp is None:
        levels = classes_of(task)
        aim.plan(config, task)  # refuse before any question
        sizes = fed.awaiting().sum(count_each_class, classes=len(levels)).sizes.tolist()
        check_each_class(sizes, levels, task.min_cell if len(fed.sites) > 1 else 1)
        aim = replace(aim, absent=tuple(c for c, n in zip(levels, sizes, strict=True) if not n))
    return _fit(fed, config, task, aim)


def fit_regressor(fed: Federation, config: NeuralSettings, task: Task) -> NeuralModel:
    """Train a network of a value or a count.

    Raises
    ------
    DataError : there are no covariates or too few rows.
    SettingError : the columns are not the image's pixels; or of a personal model.
    NothingToLearn : the outcome is constant.
    SiteUnavailable : a call fell below the quorum.
    """
    aim = aim_of(task)
    if task.dp is None:
        aim.plan(config, task)
        mean, spread = mean_and_spread(fed, task.min_cell)
        poisson = aim.model == "poisson"
        aim = replace(aim, scale=mean) if poisson else replace(aim, centre=mean, scale=spread)
    return _fit(fed, config, task, aim)


def _fit(fed: Federation, config: NeuralSettings, task: Task, aim: Aim) -> NeuralModel:
    check_covariates(task)
    images = refined.images(fed, config.refined, task)
    plan = aim.plan(config, task, [image.map for image in images])
    theta = initial(plan.network, task.seed)
    if task.dp is not None:
        found = private_fits.train(fed, config, plan, theta, task, task.dp)
    else:
        own, plan, theta = begun(task, plan, theta, config.schedule, counts=config.counts)
        held_out = pooled.held_out_loss(fed, plan)
        if own is not None and own.validation is not None:
            held_out = own.loss
        found = fits.train_as_set(
            fed, config, plan, theta, task, held_out=held_out, own=own,
            exact=lambda: pooled.exact(fed, plan, config.schedule, theta, held_out),
        )  # fmt: skip
    model = NeuralModel(
        features=task.features,
        levels=classes_of(task) if aim.model == "softmax" else (),
        model=aim.model,
        network=plan.network,
        thetas=found.thetas,
        weights=found.weights,
        centre=aim.centre,
        scale=aim.scale,
        rounds=found.rounds,
        absent=aim.absent,
        every=config.method if config.every else "",
        **refined.told(images, len(task.features)),
    )
    kept = {r: replace(model, thetas=thetas, rounds=r) for r, thetas in found.kept.items()}
    return replace(model, kept=kept)


def own_model(
    site: str, design: Any, asked: Mapping[str, Any], left: Mapping[str, Array]
) -> NeuralModel | None:
    """Return the model that a step has finished at a site (`Method.own_model`)."""
    own = personal.Own.finished(left)
    if own is None:
        return None
    plan = Plan.of(asked["plan"])
    model, centre, scale = units_of(plan.loss)
    return NeuralModel(
        features=design.features,
        levels=design.classes if model == "softmax" else (),
        model=model,
        network=plan.network,
        thetas=own.model[None],
        weights=fits.ONE,
        centre=centre,
        scale=scale,
        rounds=0,
    )
