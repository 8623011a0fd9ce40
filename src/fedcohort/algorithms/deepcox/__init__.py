"""DeepCox: Cox's partial likelihood on a neural network, federated by seven strategies."""

from __future__ import annotations

from fedcohort.algorithms.deepcox.model import DeepCoxModel
from fedcohort.algorithms.deepcox.program import STEPS, fit
from fedcohort.algorithms.deepcox.settings import DeepCoxSettings
from fedcohort.protocol import Method

METHOD = Method(
    name="deepcox",
    title="Cox regression with a neural network as the log risk",
    tasks=("survival",),
    paper="Faraggi and Simon 1995; GenoMed4All D6.2 (2021), section 8.2",
    reveals=(
        "fedavg, fedprox, fedadam, fedyogi: the sum over sites of models weighted by rows, every "
        "round. exact: the sums over sites of risk sets on the time grid and of the gradient, "
        "every round. sequential: the model as each site left it, every round. ensemble: each "
        "site's own model, once, to all sites. All: the time grid (sums; with time_grid=exact "
        "each site's times of death), and deaths and risk sets on it, as sums over sites."
    ),
    settings=DeepCoxSettings,
    fit=fit,
    model=DeepCoxModel,
    steps=STEPS,
    gives=frozenset({"predict", "predict_survival", "at_round"}),
    preprocess={"scale": "minmax", "impute": "median"},
    alone={"strategy": "exact", "time_grid": "exact"},
)
