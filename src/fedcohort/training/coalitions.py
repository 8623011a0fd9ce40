"""Regressions over coalitions of sites, judged on the rows of one site: the user's.

McCullagh & Nelder, "Generalized Linear Models", 2nd ed. 1989, with the canonical links of
`numerics.families`, and for K > 2 classes the baseline-category logits of `numerics.classes`. Over
sites i of public weights a_i, n_i rows, and deviances D_i, the model is

    γ = argmin Σ a_i D_i(γ) / (2 Σ a_i n_i) + λ/2 ‖β‖²,   γ = (b₀, β)                        (1)

found by Newton's method; a step is halved until (1) does not rise. The loss of a model on n rows is

    L(γ) = c D(γ)/n,   c = 1 for continuous outcomes (mean squared error), else ½ (log loss)  (2)

Covariates are centred at a public point. b₀ is not penalised, so this changes no model. Of K
classes D is −2 log-likelihood, γ has (b_c, β_c) of each class after the first, k = (K − 1)(1 + p),
and ‖β‖² is Σ_c ‖β_c − mean β‖² over all classes, as in `multinomial`.

Revealed: `Losses` of the user alone: one number for each model that it judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.data.tables import LabelledTable
from fedcohort.data.words import known_name
from fedcohort.numerics.classes import multinomial_terms, probabilities, spread_of_classes
from fedcohort.numerics.families import CANONICAL, Family, irls_terms
from fedcohort.numerics.parameters import class_intercept_rows, class_rows, intercept_row
from fedcohort.protocol import (
    DataError,
    Federation,
    Fitted,
    NotConverged,
    Row,
    SettingError,
    Site,
    SiteUnavailable,
    Task,
    changed,
    gathered,
    message,
    setting,
)
from fedcohort.training.settings import RidgeSettings, UserSettings

#: Name of a model in the settings → distribution of its outcome.
MODELS: Mapping[str, str] = {
    "linear": "gaussian", "logistic": "binomial", "multinomial": "multinomial",
    "poisson": "poisson",
}  # fmt: skip
#: Models of each type of outcome; the first is the default.
FITS: Mapping[str, tuple[str, ...]] = {
    "continuous": ("linear", "poisson"),
    "count": ("poisson", "linear"),
    "binary": ("logistic",),
    "category": ("multinomial",),
    "ordinal": ("multinomial",),
}
#: Name of exp(β).
RATIOS = {"binomial": "odds_ratio", "poisson": "rate_ratio"}
#: The last step lowers (1) by less than this; the next would lower it by the square.
GAIN = 1e-12
#: Most Newton steps of a fit.
ROUNDS = 60

_TAG = 0x70726976

UserSite = Site[LabelledTable, None]


@dataclass(frozen=True, kw_only=True)
class CoalitionSettings(UserSettings):
    """Settings of methods that fit these models.

    Attributes
    ----------
    by_class : whether there are coefficients for each class.
    """

    by_class: ClassVar[bool] = True
    model: str = setting(
        "auto",
        "Model of each site; auto: logistic for yes/no, multinomial for several classes, Poisson "
        "for counts, otherwise linear",
        choices=("auto", *MODELS),
    )
    l2: float = changed(
        RidgeSettings, "l2", default=0.001, doc="Ridge penalty λ₂ > 0", within="(0, inf)"
    )


class Law(NamedTuple):
    """Distribution of the outcome, with its canonical link.

    Attributes
    ----------
    name : gaussian, binomial, poisson or multinomial.
    classes : K of multinomial; else 0.
    """

    name: str
    classes: int = 0

    @property
    def kinds(self) -> int:
        """Number of classes of the outcome; 0 without."""
        return 2 if self.name == "binomial" else self.classes

    @property
    def straight(self) -> bool:
        """Whether D is quadratic."""
        return self.name == "gaussian"

    def size(self, p: int) -> int:
        """Return the number k of parameters of p covariates."""
        return max(self.classes - 1, 1) * (1 + p)

    def ridge(self, p: int, l2: float) -> Array:
        """Return the second derivative (k, k) of the penalty of eq. (1)."""
        among = spread_of_classes(self.classes) if self.classes else np.ones((1, 1))
        return np.kron(among, np.diag(np.r_[0.0, np.full(p, l2)]))


class Sums(NamedTuple):
    """Sums over rows at C points: weighted ``rows`` (C,), D (C,), U (C, k), I (C, k, k)."""

    rows: Array
    deviance: Array
    score: Array
    information: Array


@message
class Losses:
    """Eq. (2) of C models on the user's rows (C,); ``few`` () is true if the rows are too few."""

    few: Array
    loss: Array


# settings -----------------------------------------------------------------------------


def law_of(model: str, task: Task, method: str) -> Law:
    """Return the outcome's distribution.

    Raises
    ------
    SettingError : the model does not fit the type of outcome.
    """
    outcome = task.outcome or ("binary" if task.kind == "classification" else "continuous")
    if outcome not in FITS:
        raise SettingError(
            f"method {method!r} has no model for an outcome of type {outcome!r}; give classes, a "
            f"continuous or a count outcome."
        )
    name = FITS[outcome][0] if model == "auto" else model
    if name not in FITS[outcome]:
        raise SettingError(
            f"model {name!r} of method {method!r} does not go with a {outcome} outcome; give "
            f"{' or '.join(map(repr, sorted(FITS[outcome])))}, or auto."
        )
    return Law(MODELS[name], len(task.levels) if name == "multinomial" else 0)


def user_of(fed: Federation, user: str, method: str) -> str:
    """Return the name of the user's site; with one table, that table.

    Raises
    ------
    SettingError : no site is named, or no such site exists; the error lists the sites.
    """
    if len(fed.sites) == 1:
        return fed.sites[0]
    if not user:
        names = ", ".join(fed.sites[:12]) + (", …" if len(fed.sites) > 12 else "")
        raise SettingError(
            f"method {method!r} needs 'user', the site that the model is for. Sites: {names}."
        )
    if user not in fed.sites:
        raise SettingError(f"setting 'user' of method {method!r}: " + known_site(user, fed))
    return user


def known_site(name: str, fed: Federation) -> str:
    """Return the error text for an unknown site, with the nearest name or the list of sites."""
    return known_name("site", name, fed.sites)


def origin_of(task: Task) -> Array:
    """Return the public point (p,) at which covariates are centred.

    Raises
    ------
    DataError : there are no covariates.
    """
    check_covariates(task)
    return np.zeros(len(task.features)) if task.origin is None else np.asarray(task.origin, float)


# site ---------------------------------------------------------------------------------


def halves(n: int, held: int, entropy: tuple[int, ...]) -> tuple[Array, Array]:
    """Split the user's rows 0…n−1 into training rows and private rows, both increasing.

    The split depends on (study seed, site) alone, so it is the same in all calls.

    Parameters
    ----------
    held : private rows, in percent. A whole number, which the site compares with the study's: two
        shares that differ in one row would tell that row.
    """
    order = np.random.default_rng((*entropy[:2], _TAG)).permutation(n)
    private = round(held * n / 100)
    return np.sort(order[private:]), np.sort(order[:private])


def sums_at(law: Law, x: Array, y: Array, points: Array) -> Sums:
    """Return the sums over rows x (n, p), y (n,), of weight 1 each, at points (C, k)."""
    z = np.column_stack([np.ones(len(y)), x])
    found = [_terms(law, z, y, point) for point in points]
    k = law.size(x.shape[1])
    return Sums(
        np.full(len(points), float(len(y))),
        np.array([f[0] for f in found]),
        np.array([f[1] for f in found]).reshape(-1, k),
        np.array([f[2] for f in found]).reshape(-1, k, k),
    )


def _terms(law: Law, z: Array, y: Array, point: Array) -> tuple[float, Array, Array]:
    """Return D, U (k,) and I (k, k) of rows z (n, 1 + p), y (n,) at a point (k,)."""
    if law.classes:
        gamma = point.reshape(law.classes - 1, -1)
        of = multinomial_terms(z, np.asarray(y, np.int64), np.ones(len(y)), gamma)
        return -2.0 * of.log_likelihood, of.score, of.information
    family = Family(law.name, CANONICAL[law.name])
    found = irls_terms(family, z, y, np.zeros(1), np.ones(1), point)
    return found.deviance, found.score, found.information


def losses(law: Law, x: Array, y: Array, points: Array) -> Array:
    """Return eq. (2) (C,) of models (C, k) on rows x (n, p), y (n,)."""
    part = 1.0 if law.straight else 0.5
    return part * sums_at(law, x, y, points).deviance / max(len(y), 1)


@gathered
def judge_here(
    site: UserSite, *, law: str, classes: int, user: str, held: int, origin: Array, points: Array,
    least: int,
) -> Losses:  # fmt: skip
    """Return the mean loss of each given model on the user's private rows.

    The models are `points` (C, k). `held` percent of the rows are private; 0 uses all rows.

    Raises
    ------
    DataError : this is not the user's site.
    """
    if site.name != user:
        raise DataError(f"site {site.name!r} does not judge models: it is not the user's site.")
    rows = halves(len(site.data.y), held, site.entropy)[1] if held else slice(None)
    x, y = site.data.x[rows] - origin, site.data.y[rows]
    few = len(y) < max(least, 1)
    found = np.zeros(0) if few else losses(Law(law, classes), x, y, points)
    return Losses(np.array(few), found)


# coordinator --------------------------------------------------------------------------


def judged(
    fed: Federation, user: str, law: Law, held: int, origin: Array, points: Array, least: int
) -> Array:
    """Return the user's loss (C,) of each model (C, k).

    Raises
    ------
    DataError : the user has too few rows.
    SiteUnavailable : the user's site does not answer.
    """
    replies = fed.only([user]).gather(
        judge_here, law=law.name, classes=law.classes, user=user, held=held, origin=origin,
        points=points, least=least,
    )  # fmt: skip
    if replies[user].few:
        raise DataError(
            f"site {user!r}, the user, has fewer than {least} rows to judge models by (min_cell)."
        )
    return replies[user].loss


def gone(user: str) -> SiteUnavailable:
    """Return the error for a user's site that does not answer."""
    return SiteUnavailable(
        f"site {user!r}, the user that the model is for, did not answer. Bring it back and "
        f"--resume, or name another user."
    )


def ascend(
    at: Callable[[Array, Array], Sums], start: Array, ridge: Array, *, straight: bool
) -> Array:
    """Minimise eq. (1) for C objectives at once.

    Parameters
    ----------
    at : (points (c, k), numbers of their objectives (c,)) → their sums.
    start : γ (C, k).
    ridge : second derivative of the penalty (k, k), see `Law.ridge`.
    straight : whether D is quadratic, so that the first step is the last.

    Returns
    -------
    gamma : (C, k).

    Raises
    ------
    NotConverged : `ROUNDS` steps were too few.
    """
    base, value = start.astype(float), np.full(len(start), np.inf)
    step, live = np.zeros_like(base), np.arange(len(start))
    for _ in range(ROUNDS):
        if not len(live):
            return base
        tried = base[live] + step[live]
        here = at(tried, live)
        height = here.deviance / (2 * here.rows) + 0.5 * (tried @ ridge * tried).sum(axis=1)
        worse = ~(height <= value[live] + GAIN * (1 + np.abs(height)))
        step[live[worse]] /= 2
        fine = live[~worse]
        base[fine], value[fine] = tried[~worse], height[~worse]
        n = here.rows[~worse, None]
        slope = here.score[~worse] / n - base[fine] @ ridge
        bent = here.information[~worse] / n[..., None] + ridge
        step[fine] = np.linalg.solve(bent, slope[..., None])[..., 0]
        gain = (step[fine] * slope).sum(axis=1)
        done = fine[np.full(len(fine), True) if straight else gain < GAIN]
        base[done] += step[done]
        live = np.setdiff1d(live, done)
    if not len(live):
        return base
    raise NotConverged(
        f"{len(live)} of {len(start)} regressions did not end in {ROUNDS} steps. Raise l2, or "
        f"standardise the covariates (scale)."
    )


# model --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class UserModel(Fitted):
    """Generalised linear model for one user, with the sites that were left out.

    Attributes
    ----------
    features : names of the covariates, in order (p,).
    user : the site that the model is for.
    law : distribution of the outcome.
    intercept, coefficients : b₀ (), the linear predictor at x = 0, and β (p,); of K classes
        (K − 1,) and (K − 1, p), of the classes after the first less the first.
    left_out : reason why a site was left out, by site.
    levels : the K classes of multinomial; else ().
    """

    features: tuple[str, ...]
    user: str
    law: str
    intercept: Array
    coefficients: Array
    left_out: Mapping[str, str]
    levels: tuple[str, ...] = ()

    def predict(self, x: Array) -> Array:
        """Return the expected outcome (n,) of rows x (n, p); a probability if the outcome is
        binary. Of K classes their probabilities (n, K).
        """
        eta = self.intercept + np.asarray(x, float) @ self.coefficients.T
        if self.levels:
            return probabilities(eta)
        return Family(self.law, CANONICAL[self.law]).inverse(eta)

    def summary(self) -> list[Row]:
        """Return each covariate's coefficient, without a standard error (see the method).

        Of several classes one row for each class after the first, compared with the first.
        """
        if self.levels:
            return class_rows(self.features, self.levels, self.coefficients)
        ratio = RATIOS.get(self.law, "")
        pairs = zip(self.features, self.coefficients.tolist(), strict=True)
        return [
            {"covariate": name, "coefficient": b}
            | ({ratio: math.exp(min(b, 709.0))} if ratio else {})
            for name, b in pairs
        ]

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, and the formula of a prediction."""
        if self.levels:
            return class_intercept_rows(self.levels, self.intercept)
        return [intercept_row(float(self.intercept), None, 0.95, CANONICAL[self.law])]

    def cautions(self) -> tuple[str, ...]:
        """Return the sites that were left out, with the reason."""
        return tuple(f"site {site!r} is left out: {why}" for site, why in self.left_out.items())

    def arrays(self) -> dict[str, Array]:
        """Return b₀ and β."""
        return {"intercept": self.intercept, "coefficients": self.coefficients}

    def meta(self) -> dict[str, Any]:
        """Return names, the user, the distribution, and the sites left out."""
        return {
            "features": list(self.features), "user": self.user, "law": self.law,
            "left_out": dict(self.left_out), "levels": list(self.levels),
        }  # fmt: skip

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        return cls(**cls.restored(arrays, meta))

    @classmethod
    def restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that all models for a user share."""
        return {
            "features": tuple(meta["features"]),
            "user": str(meta["user"]),
            "law": str(meta["law"]),
            "intercept": np.asarray(arrays["intercept"]),
            "coefficients": np.asarray(arrays["coefficients"]),
            "left_out": dict(meta["left_out"]),
            "levels": tuple(meta.get("levels", ())),
        }


def unshifted(law: Law, gamma: Array, origin: Array) -> tuple[Array, Array]:
    """Return b₀ () and β (p,) of γ (k,), whose covariates are centred at `origin` (p,).

    Of K classes (K − 1,) and (K − 1, p).
    """
    by_class = gamma.reshape(-1, 1 + len(origin))
    b, beta = by_class[:, 0] - by_class[:, 1:] @ origin, by_class[:, 1:]
    return (b, beta) if law.classes else (b[0], beta[0])
