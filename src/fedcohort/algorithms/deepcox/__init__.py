"""DeepCox: Cox's partial likelihood on a neural network, federated by seven strategies."""

from __future__ import annotations

from fedcohort.algorithms.deepcox import private
from fedcohort.algorithms.deepcox.model import DeepCoxModel
from fedcohort.algorithms.deepcox.program import STEPS, asks, fit
from fedcohort.algorithms.deepcox.settings import DeepCoxSettings
from fedcohort.protocol import Method

AVERAGED = "each round, the sum over sites of their models, weighted by rows"
SEEN = "each round, every site's own model, which the coordinator sees: no masked sum can hide it"
REVEALS = {
    **dict.fromkeys(("fedavg", "fedprox", "fedadam", "fedyogi"), AVERAGED),
    "exact": "each step, the sums over sites of risk sets on the time grid and of the gradient",
    "sequential": "each round, every site's own model as it left it, which the coordinator sees",
    "ensemble": "once, every site's own model, which the coordinator and all sites see",
}


def reveals_with(config: DeepCoxSettings) -> str:
    """Say in plain words what leaves a site with these settings."""
    exact_times = config.time_grid == "exact"
    grid = "each site's own times of death" if exact_times else "histograms of the times of death"
    how = "which the coordinator sees" if exact_times else "as sums over sites"
    trained = REVEALS[config.strategy] if config.centre.plain else SEEN
    text = f"{trained}; {grid}, {how}; deaths and risk sets on them, as sums."
    return text[0].upper() + text[1:]


def visible(config: DeepCoxSettings) -> str:
    """Return the setting for which the coordinator sees each site's model in every round."""
    return "" if config.centre.plain else f"aggregation: {config.aggregation}"


METHOD = Method(
    name="deepcox",
    title="Cox regression with a neural network as the log risk",
    tasks=("survival",),
    paper="Faraggi and Simon 1995; GenoMed4All D6.2 (2021), section 8.2",
    reveals=(
        "; ".join(f"{name}: {text}" for name, text in REVEALS.items())
        + f"; an aggregation other than mean: {SEEN}; all: the time grid, deaths and risk sets on "
        "it, as sums over sites."
    ),
    reveals_with=reveals_with,
    settings=DeepCoxSettings,
    fit=fit,
    model=DeepCoxModel,
    steps=STEPS,
    asks=asks,
    visible=visible,
    private=private.releases,
    clips=private.CLIPS,
    gives=frozenset({"predict", "predict_survival", "at_round"}),
    preprocess={"scale": "minmax", "impute": "median"},
    alone={"strategy": "exact", "time_grid": "exact", "aggregation": "mean"},
)
