"""Descriptions of metrics for readers: name, meaning in plain words, better side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """Description of a metric.

    Attributes
    ----------
    label : as printed.
    plain : one sentence for a clinician.
    sign : 1 if more is better, −1 if less is, 0 if neither.
    chance : value of a model without any information, if there is one.
    in_unit : it is in the outcome's unit.
    unit : that unit, if the run knows it.
    digits : printed decimals.
    is_p : the p-value of a test, which is neither averaged nor compared.
    """

    label: str
    plain: str
    sign: int = 1
    chance: float | None = None
    in_unit: bool = False
    unit: str = ""
    digits: int = 3
    is_p: bool = False

    @property
    def axis(self) -> str:
        """The label with the unit, as an axis or a head of a table has it."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    @property
    def after(self) -> str:
        """The unit as it stands behind a number in a sentence."""
        return f" {self.unit}" if self.unit else ""


METRICS: Mapping[str, Metric] = {
    "c_index": Metric(
        "C-index",
        "Of two patients, how often the one with the higher predicted risk has the event first: "
        "0.5 is chance, 1 is always.",
        chance=0.5,
    ),
    "c_index_own": Metric(
        "C-index, own patients",
        "The C-index of a model among the held-back patients of one hospital only.",
        chance=0.5,
    ),
    "uno_c": Metric(
        "Uno's C",
        "The same question as the C-index, corrected for patients who left the study early.",
        chance=0.5,
    ),
    "antolini_c": Metric(
        "Time-dependent C",
        "Of two patients, how often the one who has the event first had the lower predicted "
        "survival at that time: 0.5 is chance, 1 is always. It is the C-index where predicted "
        "curves never cross.",
        chance=0.5,
    ),
    "ibs": Metric(
        "Brier score",
        "Mean squared distance between predicted survival and what happened, over follow-up: "
        "0 is perfect, lower is better.",
        sign=-1,
    ),
    "calibration_slope": Metric(
        "Calibration slope",
        "1 when predictions are spread as much as they should be; below 1 they are too extreme, "
        "above 1 too timid.",
        sign=0,
    ),
    "d_calibration_p": Metric(
        "D-calibration p",
        "Test of whether predicted survival curves agree with what happened; a small p says that "
        "they do not.",
        sign=0,
        is_p=True,
    ),
    "auc": Metric(
        "AUC",
        "Of two patients, one with and one without the outcome, how often the one who has it got "
        "the higher probability: 0.5 is chance, 1 is always.",
        chance=0.5,
    ),
    "auc_own": Metric(
        "AUC, own patients",
        "The AUC of a model among the held-back patients of one hospital only.",
        chance=0.5,
    ),
    "accuracy": Metric(
        "Accuracy",
        "Share of patients classified correctly when a probability above one half means yes. "
        "Compare it with the share of the more frequent outcome.",
    ),
    "balanced_accuracy": Metric(
        "Balanced accuracy",
        "Mean over classes of the share of a class’s patients whose likeliest class is their own: "
        "rare classes count as much as frequent ones.",
    ),
    "brier": Metric(
        "Brier score",
        "Mean squared distance between predicted probability and what happened: 0 is perfect, one "
        "half for everybody gives 0.25, lower is better.",
        sign=-1,
        chance=0.25,
    ),
    "log_loss": Metric(
        "Log loss",
        "Mean of minus the logarithm of the probability given to what happened: 0 is perfect, one "
        "half for everybody gives 0.693, lower is better.",
        sign=-1,
        chance=0.693,
    ),
    "r2": Metric(
        "R²",
        "Share of the outcome's variance among blind patients that the predictions explain: 1 is "
        "all, 0 is predicting their mean, below 0 is worse than that.",
        chance=0.0,
    ),
    "r2_own": Metric(
        "R², own patients",
        "The R² of a model among the held-back patients of one hospital only.",
        chance=0.0,
    ),
    "rmse": Metric(
        "RMSE",
        "Root mean squared error, the size of a typical error in the unit of the outcome, where "
        "large ones weigh more: 0 is perfect, lower is better.",
        sign=-1,
        in_unit=True,
    ),
    "mae": Metric(
        "Mean absolute error",
        "By how much predictions are off on average, in the unit of the outcome: 0 is perfect, "
        "lower is better.",
        sign=-1,
        in_unit=True,
    ),
    "calibration_intercept": Metric(
        "Calibration intercept",
        "Mean of observed minus predicted values, in the unit of the outcome: 0 is right, above 0 "
        "predictions are too low.",
        sign=0,
        in_unit=True,
    ),
    "poisson_deviance": Metric(
        "Poisson deviance",
        "Mean distance between predicted and observed counts, on the scale of a Poisson "
        "likelihood: 0 is perfect, lower is better.",
        sign=-1,
    ),
    "pcc": Metric(
        "Pearson correlation",
        "Correlation of predicted and observed values: 1 is a perfect line, 0 is none. It does not "
        "see predictions that are all too high, or too spread out.",
        chance=0.0,
    ),
    "nrmse": Metric(
        "Normalised RMSE",
        "Root mean squared error over the standard deviation of the outcome among blind patients: "
        "0 is perfect, 1 is predicting their mean, lower is better.",
        sign=-1,
        chance=1.0,
    ),
    "silhouette": Metric(
        "Silhouette",
        "How much nearer patients are to their own group than to the next one: 1 is far apart, 0 "
        "is on the border between two, below 0 the next group would suit them better.",
    ),
    "simplified_silhouette": Metric(
        "Simplified silhouette",
        "How much nearer patients are to the middle of their own group than to that of the next "
        "one: 1 is far apart, 0 is on the border. It is mostly above the silhouette, which takes "
        "distances between patients.",
    ),
    "calinski_harabasz": Metric(
        "Calinski–Harabasz index",
        "Spread between the groups over the spread within them: more is tighter. It has no fixed "
        "scale, so compare it on the same patients only.",
        digits=1,
    ),
    "cycle_accuracy": Metric(
        "Cycle accuracy",
        "Share of patients who come into the same group again after the model has encoded and "
        "decoded them: 1 is all.",
    ),
    "reconstruction": Metric(
        "Reconstruction error",
        "Mean squared distance between the features of a patient and their reconstruction by the "
        "model: 0 is perfect, lower is better.",
        sign=-1,
    ),
    "reconstruction_accuracy": Metric(
        "Accuracy of reconstruction",
        "Of features that are yes or no, the expected share of right entries if each reconstructed "
        "value is taken as a probability: 1 is all. Compare it with rows that are all the mean.",
    ),
    "rounded_accuracy": Metric(
        "Rounded accuracy of reconstruction",
        "Of features that are yes or no, the share of right entries after rounding each "
        "reconstructed value: 1 is all. Compare it with the share of the more frequent values.",
    ),
    "g_ratio": Metric(
        "G",
        "Reconstruction error of training patients over that of blind patients: 1 is alike, below "
        "1 the model fits patients that it has seen better than others.",
        sign=0,
    ),
    "smallest_share": Metric(
        "Smallest group",
        "Share of the training patients in the smallest group; near 0 it is hardly there.",
        sign=0,
    ),
    "log_rank_p": Metric(
        "Log-rank p",
        "Test of whether the groups differ in survival, among the blind patients; a small p says "
        "that they do.",
        sign=0,
        is_p=True,
    ),
    "ari": Metric(
        "Adjusted Rand index",
        "Share of pairs of patients that groups and known classes both put together, or both "
        "apart, corrected for chance: 0 is chance, 1 is always.",
        chance=0.0,
    ),
    "nmi": Metric(
        "Normalised mutual information",
        "How well groups and known classes predict each other: 0 is not at all, 1 is fully.",
        chance=0.0,
    ),
    "agreement": Metric(
        "Agreement with pooled data",
        "Whether these are the groups that all data in one place would give: adjusted Rand index "
        "on the same blind patients, 0 is chance, 1 is the same groups.",
        chance=0.0,
    ),
    "reconstruction_mae": Metric(
        "Reconstruction error",
        "Mean absolute distance between the features of a patient and their reconstruction from "
        "the latent coordinates, in standard deviations of each feature: 0 is perfect, about 0.8 "
        "is what its mean would do.",
        sign=-1,
        unit="standard deviations",
    ),
    "reconstruction_mae_own": Metric(
        "Reconstruction error, own patients",
        "The same among the held-back patients of one hospital only.",
        sign=-1,
        unit="standard deviations",
    ),
    "imputation_mae": Metric(
        "Imputation error",
        "A view of each patient is hidden in turn and filled in from the others: by how much that "
        "is off, on average, in standard deviations of each feature: 0 is perfect, about 0.8 is "
        "what its mean would do.",
        sign=-1,
        unit="standard deviations",
    ),
    "imputation_rmse": Metric(
        "Imputation error, root mean square",
        "The same, where large errors weigh more: 0 is perfect, 1 is what the mean would do.",
        sign=-1,
        unit="standard deviations",
    ),
    "marginal_error": Metric(
        "Marginal error",
        "How far the distribution of a column of virtual patients is from that of blind patients, "
        "mean over columns: of numbers and yes/no columns the largest difference of the "
        "distribution functions, where a missing value is below all others; of levels half the sum "
        "of differences of their shares. 0 is equal, at most 1. Rows of a perfect model "
        "are not at 0: one number of n blind and m virtual rows then has about 0.87 √(1/n + 1/m).",
        sign=-1,
    ),
    "association_error": Metric(
        "Correlation error",
        "How far correlations between two columns of virtual patients are from those of blind "
        "patients, mean over pairs: 0 is equal.",
        sign=-1,
    ),
    "utility": Metric(
        "Utility",
        "C-index, AUC or R², on blind patients, of a model that learnt from virtual ones alone.",
    ),
    "utility_ratio": Metric(
        "Utility ratio",
        "The same, divided by that of a model that learnt from the training patients: 1 if virtual "
        "patients teach as much.",
    ),
    "distance_ratio": Metric(
        "Distance ratio",
        "Median distance of virtual patients to the nearest training patient, divided by that of "
        "blind patients: 1 if they are as far away as new patients; far below 1, they are near "
        "copies.",
        sign=0,
    ),
    "copies": Metric(
        "Copies",
        "Share of virtual patients that equal a training patient in every column.",
        sign=-1,
    ),
    "membership_auc": Metric(
        "Membership AUC",
        "How well an attacker tells training patients from others, by the distance to the nearest "
        "virtual patient: 0.5 is guessing, 1 is always.",
        sign=-1,
        chance=0.5,
    ),
    "masked_rmse": Metric(
        "Error of imputed numbers",
        "Known numbers of blind patients are hidden at random and imputed: root mean square of "
        "how far off that is, in standard deviations of each column: 0 is perfect, 1 is what the "
        "column’s mean would do.",
        sign=-1,
        unit="standard deviations",
    ),
    "masked_rmse_own": Metric(
        "Error of imputed numbers, own patients",
        "The same among the held-back patients of one hospital only.",
        sign=-1,
        unit="standard deviations",
    ),
    "masked_mae": Metric(
        "Mean absolute error of imputed numbers",
        "The same, where large errors weigh less: about 0.8 is what the column’s mean would do.",
        sign=-1,
        unit="standard deviations",
    ),
    "masked_wrong": Metric(
        "Wrong levels",
        "Share of levels and yes-or-no values that are hidden at random and imputed wrong.",
        sign=-1,
    ),
    "masked_coverage": Metric(
        "Coverage of intervals",
        "Share of hidden numbers inside the 95 % interval of several draws: 0.95 if the draws are "
        "as uncertain as they should be.",
        sign=0,
    ),
    "masked_rmse_by_value": Metric(
        "Error of imputed numbers, hidden by value",
        "The same where high values are hidden more often than low ones, which no method that "
        "assumes values to be missing at random can know.",
        sign=-1,
        unit="standard deviations",
    ),
    "masked_rmse_by_view": Metric(
        "Error of imputed numbers, view hidden",
        "The same where each view is hidden as a whole, and imputed from the others.",
        sign=-1,
        unit="standard deviations",
    ),
    "masked_wrong_by_view": Metric(
        "Wrong levels, view hidden",
        "Share of levels imputed wrong where each view is hidden as a whole.",
        sign=-1,
    ),
    "latent_accuracy": Metric(
        "Accuracy from latent coordinates",
        "Share of patients whose known class a linear discriminant predicts correctly from their "
        "latent coordinates alone. Compare it with the share of the most frequent class.",
    ),
    "latent_auc": Metric(
        "AUC from latent coordinates",
        "Of two patients of different classes, how often a linear discriminant of the latent "
        "coordinates orders them right: 0.5 is chance, 1 is always.",
        chance=0.5,
    ),
}
#: Metrics that mean something else where groups are judged.
OF_CLUSTERS: Mapping[str, Metric] = {
    "c_index": Metric(
        "C-index",
        "Of two patients, how often the one whose group has the higher rate of events has the "
        "event first; two of one group count half. 0.5 is chance, 1 is always.",
        chance=0.5,
    ),
    "accuracy": Metric(
        "Accuracy",
        "Share of patients whose group is that of their known class, when groups and classes are "
        "matched as well as can be.",
    ),
}


def of_classes(name: str, k: int) -> Metric | None:
    """Return the description of a metric that means something else with k > 2 classes."""
    return {
        "auc": Metric(
            "AUC",
            "Of two patients, one of a class and one of another, how often the first got the "
            "higher probability of the class; the mean over classes, each against all others. 0.5 "
            "is chance, 1 is always.",
            chance=0.5,
        ),
        "accuracy": Metric(
            "Accuracy",
            "Share of patients whose likeliest class is their own. Compare it with the share of "
            "the most frequent class.",
        ),
        "brier": Metric(
            "Brier score",
            "Squared distance between the predicted probability and what happened, summed over "
            f"classes, mean over patients: 0 is perfect, 1/{k} for every class gives "
            f"{1 - 1 / k:.3g}, lower is better.",
            sign=-1,
            chance=1 - 1 / k,
        ),
        "log_loss": Metric(
            "Log loss",
            "Mean of minus the logarithm of the probability given to what happened: 0 is perfect, "
            f"1/{k} for every class gives {math.log(k):.3g}, lower is better.",
            sign=-1,
            chance=math.log(k),
        ),
    }.get(name)


def metric(name: str, task: str = "", classes: int = 0) -> Metric:
    """Return a metric's description in a task; an unknown one is printed by its name.

    Parameters
    ----------
    classes : number of classes of the outcome that is predicted; 0 without.
    """
    if classes > 2 and (found := of_classes(name, classes)) is not None:
        return found
    if task == "clustering" and name in OF_CLUSTERS:
        return OF_CLUSTERS[name]
    return METRICS.get(name) or Metric(name.replace("_", " "), "")
