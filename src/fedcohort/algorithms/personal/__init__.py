"""Personalised baselines: a model for one site, from its own rows, from all, or between the two."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.personal.model import PersonalModel
from fedcohort.algorithms.personal.program import STEPS, asks, fit, own_model
from fedcohort.algorithms.personal.settings import PersonalSettings
from fedcohort.models.predictor import LINKS, USUAL
from fedcohort.protocol import Method, Task
from fedcohort.training import heterogeneity, personal
from fedcohort.training.hazard import REVEALS as HAZARD

COUNTS = "Once how many records differ in each column, and how far, as sums over sites. "
MEANS = "Each round, the sum over sites of their models, weighted by rows. "
PARTS = (
    "Each round, the sum over sites of the common part of their models, weighted by rows; a site's "
    "own part stays there. "
)
OWN = (
    "Once how many sites have rows to learn from, as a sum. At the end, and after each of "
    "keep_rounds, the user's own model and its loss on the user's rows, which the coordinator sees."
)
ALONE = (
    "At the end, the user's own model, those after keep_rounds, and its loss in each round, which "
    "the coordinator sees; nothing of other sites' models."
)
ALL = " For it all sites see the user's own model."
GROUPS = (
    "In half of the rounds as finetune; then which model each site takes, to the coordinator, and "
    "the sums of the models and losses of those that do; once the sum of the losses of trial "
    "models, and counts of the sites that take them."
)
TAKEN = "At the end which model the user takes."

EACH = (
    "At the end the number of sites with rows to learn from, the losses of their models, and α of "
    "apfl, as sums over sites. Each site's own model stays there."
)
EACH_ALONE = (
    "The losses of each round, as sums over sites. Each site's own model stays there, and involves "
    "no other site."
)
CURVE = (
    " For the baseline hazard of a Cox model, histograms of the times of death, as sums over "
    "sites, and how many sites have a hazard; it stays there."
)

WATCHED = f"With a monitor, {heterogeneity.REVEALS}."
SEEN = (
    "With monitor: validation, each round every site's own model, which the coordinator sees: no "
    "masked sum can hide it."
)
UNTIL = "Before its alarm sites tell that and the sum of their models alone."


def reveals_with(config: PersonalSettings) -> str:
    """Return what leaves a site, in plain words."""
    told_all = "" if config.way == "global" else ALL
    own, alone, hazard = OWN, ALONE, f" {HAZARD}{told_all}"
    if config.every:
        own, alone, hazard = EACH, EACH_ALONE, CURVE
    hazard *= config.baseline and config.model in ("auto", "cox")
    if config.way == "local":
        return alone + hazard
    by_way = {
        "global": MEANS + EACH if config.every else MEANS.strip(),
        "cluster": f"{GROUPS} {EACH}" if config.every else f"{GROUPS} {TAKEN}",
        **dict.fromkeys(personal.PARTED, PARTS + own),
    }
    text = COUNTS + by_way.get(config.way, MEANS + own) + hazard
    if config.monitor == "none":
        return text
    if config.validated:
        return f"{text} {SEEN}"
    monitored = f" {WATCHED}" if config.way == "global" else f" {WATCHED} {UNTIL}"
    return text + monitored


def bounds(config: PersonalSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    model = config.model_of(task)
    plan = config.plan(task, model)
    return {
        "plan": (plan.text,),
        "rounds": (config.rounds,),
        "link": (LINKS[model],),
        "kinds": (model != "linear",),
        "held_out": (False,),
        "together": (True,),
        "draw": (-1,),
        **config.own_bounds((config.way_of(task.features, plan),), config.rounds),
    }


METHOD = Method(
    name="personal",
    title="Personalised baselines: local, global, fine-tuned, own layer, Ditto, APFL, clusters",
    tasks=("classification", "regression", "survival"),
    outcomes=tuple(USUAL),
    paper=(
        "Yu 2020; Arivazhagan 2019 (FedPer); Collins 2021 (FedRep); Li 2021 (Ditto); Deng 2020 "
        "(APFL); Ghosh 2020 (IFCA)"
    ),
    reveals=(
        COUNTS + MEANS + "Of fedper and fedrep, of the common part alone. " + OWN + " Of cluster: "
        "counts of the sites that take each model, and sums over those that do. Of local: the "
        f"user's model and losses alone. {HAZARD}{ALL} With user 'all' no model of a site: {EACH} "
        f"{WATCHED} {SEEN}"
    ),
    reveals_with=reveals_with,
    settings=PersonalSettings,
    fit=fit,
    model=PersonalModel,
    steps=STEPS,
    asks=asks,
    own_model=own_model,
    bounds=bounds,
    preprocess={"scale": "standard", "impute": "median"},
    own=lambda config: "",
)

__all__ = ["METHOD", "PersonalModel", "PersonalSettings", "fit"]
