"""What published work and other programs say that releases cost; and sigma by formula.

Sources, by the word in front of each row:

opacus     Opacus, tests of its accountants (commit 4d0ebc8): q 0.04, sigma 1.5, 2250 steps.
prv        Gopi, Lee & Wutschitz, settings of the tests of prv_accountant, by privacy loss
           distributions; what it printed itself (`UPPER`) are upper bounds, up to 0.01 too large.
tfp        TensorFlow Privacy, tests of `compute_dp_sgd_privacy` (commit 03035d5).
tutorial   TensorFlow Privacy, tutorial on MNIST; values of its settings by the conversion of
           Canonne et al. (2020), and by privacy loss distributions. Its printed 1.19, 3.01
           and 7.10 are of the older conversion.
abadi      Abadi et al. (2016), example of section 3.2: q 0.01, sigma 4, 10000 steps.
dpa        tests of dp-accounting 0.6, or its functions called by hand.
formula    a closed form, worked out by `tests/privacy/test_accounting.py`:
           Balle & Wang (2018), theorem 8; of Laplace noise δ = 1 − exp((ε − 1/z) / 2) for ε < 1/z.
bw         Balle & Wang's own code (BorjaBalle/analytic-gaussian-mechanism).
zhao       Zhao et al. (2019), theorem 5; classic: Dwork & Roth (2014), theorem A.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.privacy import accounting
from fedcohort.protocol.private import Dp, Release


@dataclass(frozen=True)
class Vector:
    """One number: what was asked (`what`, `settings`), what is expected, and who says so."""

    source: str
    what: str
    expected: float
    settings: tuple[object, ...]

    def measured(self) -> float:
        """Return what `accounting` says."""
        return ASKED[self.what](*self.settings)  # type: ignore[operator]


def _sampled(z, q, steps, delta, accountant="pld"):
    return accounting.epsilon(
        [Release(step="s", noise=z, count=steps, sampling=q)], delta, accountant
    )


def _rdp(z, q, steps, delta):
    return _sampled(z, q, steps, delta, "rdp")


def _delta(epsilon, *noises):
    return accounting.delta([Release(step=str(i), noise=z) for i, z in enumerate(noises)], epsilon)


def _delta_laplace(epsilon, z):
    return accounting.delta([Release(step="s", noise=z, mechanism="laplace")], epsilon)


def _calibrated(epsilon, delta):
    return accounting.calibrate(
        lambda z: [Release(step="s", noise=z)], Dp(epsilon=epsilon, delta=delta)
    )


def _calibrated_sampled(epsilon, delta, q, steps):
    return accounting.calibrate(
        lambda z: [Release(step="s", noise=z, count=steps, sampling=q)],
        Dp(epsilon=epsilon, delta=delta),
    )


ASKED = {
    "epsilon pld": _sampled,
    "epsilon rdp": _rdp,
    "delta": _delta,
    "delta laplace": _delta_laplace,
    "sigma calibrated": _calibrated,
    "sigma calibrated, sampled": _calibrated_sampled,
    "sigma rule": accounting.gaussian_sigma,
}
#: Steps of 15, 60 and 45 epochs of 60000 records in batches of 256, and of 250.
E15, E60, E45, E15_250 = 3516, 14063, 10547, 3600
B = 256 / 60000


def _rows(source: str, what: str, *rows: tuple[object, ...]) -> list[Vector]:
    return [Vector(source, what, float(row[0]), tuple(row[1:])) for row in rows]  # type: ignore


VECTORS: list[Vector] = [
    # expected, sigma, q, steps, delta
    *_rows("opacus", "epsilon rdp", (7.32911117, 1.5, 0.04, 2250, 1e-5)),
    *_rows("opacus", "epsilon pld", (6.76879, 1.5, 0.04, 2250, 1e-5)),
    *_rows(
        "prv",
        "epsilon pld",
        (0.260339, 0.8, 0.001, 100, 1e-6),
        (6.199695, 1.5, 0.05, 1000, 1e-6),
    ),
    *_rows(
        "tfp",
        "epsilon rdp",
        (0.7242234026, 1.3, 150 / 60000, 6000, 1e-5),
        (1.4154988495, 1.0, 100 / 1e5, 30000, 1e-7),
    ),
    *_rows(
        "tutorial",
        "epsilon rdp",
        (0.954564, 1.3, B, E15, 1e-5),
        (2.5967, 1.1, B, E60, 1e-5),
        (6.3198, 0.7, B, E45, 1e-5),
        (0.942200, 1.3, 250 / 60000, E15_250, 1e-5),
    ),
    *_rows(
        "tutorial",
        "epsilon pld",
        (0.864589, 1.3, B, E15, 1e-5),
        (2.3818, 1.1, B, E60, 1e-5),
        (5.6397, 0.7, B, E45, 1e-5),
        (0.853030, 1.3, 250 / 60000, E15_250, 1e-5),
    ),
    *_rows("abadi", "epsilon rdp", (1.03549, 4.0, 0.01, 10000, 1e-5)),
    *_rows("abadi", "epsilon pld", (0.946999, 4.0, 0.01, 10000, 1e-5)),
    *_rows(
        "dpa",
        "epsilon pld",
        (4.377178, 1.0, 1.0, 1, 1e-5),
        (1.99309, 2.0, 1.0, 1, 1e-5),
        (2.59438, 5.0, 1.0, 10, 1e-5),
    ),
    *_rows("dpa", "epsilon rdp", (4.72851, 1.0, 1.0, 1, 1e-5)),
    # expected, epsilon, sigma of each release
    *_rows(
        "dpa",
        "delta",
        (0.126936, 1.0, 3**0.5, 3**0.5, 3**0.5),
        (0.12693674, 1.0, 1.0),
        (0.02092364, 2.0, 1.0),
    ),
    *_rows(
        "formula",
        "delta",
        (0.58909967, 1.0, 1.0, 0.5),
        (0.010352988, 0.5, 4.0, 5.0),
        (0.0070143157, 0.2, 10.0, 10.0, 20.0),
    ),
    *_rows(
        "formula",
        "delta laplace",
        (0.22119922, 0.5, 1.0),
        (0.39346934, 0.0, 1.0),
        (0.09516258, 0.3, 2.0),
    ),
    # expected, epsilon, delta
    *_rows("dpa", "sigma calibrated", (1.0, 1.0, 0.12693674), (1.0, 2.0, 0.02092364)),
    *_rows(
        "bw",
        "sigma calibrated",
        (3.730632, 1.0, 1e-5),
        (7.031827, 0.5, 1e-5),
        (30.749566, 0.1, 1e-5),
        (0.499889, 10.0, 1e-5),
    ),
    *_rows(
        "bw",
        "sigma rule",
        (3.730632, 1.0, 1e-5, "analytic"),
        (7.031827, 0.5, 1e-5, "analytic"),
        (30.749566, 0.1, 1e-5, "analytic"),
        (4.224679, 1.0, 1e-6, "analytic"),
        (0.350097, 10.0, 0.01, "analytic"),
        (0.499889, 10.0, 1e-5, "analytic"),
    ),
    *_rows(
        "zhao",
        "sigma rule",
        (4.608858, 1.0, 1e-5, "zhao"),
        (9.110506, 0.5, 1e-5, "zhao"),
        (45.114542, 0.1, 1e-5, "zhao"),
        (5.084168, 1.0, 1e-6, "zhao"),
        (0.385062, 10.0, 0.01, "zhao"),
        (0.542246, 10.0, 1e-5, "zhao"),
        (9.689611, 0.5, 1e-5, "classic"),
        (48.448053, 0.1, 1e-5, "classic"),
        (4.844805, 1.0, 1e-5, "classic_beyond_proof"),
        (5.298803, 1.0, 1e-6, "classic_beyond_proof"),
        (0.310751, 10.0, 0.01, "classic_beyond_proof"),
        (0.484481, 10.0, 1e-5, "classic_beyond_proof"),
    ),
    # what the classic formula really gives beyond its proof: expected δ, epsilon, its sigma
    *_rows("formula", "delta", (0.040578316, 10.0, 0.310751), (2.2653182e-05, 10.0, 0.484481)),
]

#: Upper bounds that prv_accountant printed, at most 0.02 wide: expected, sigma, q, steps, delta.
UPPER: list[Vector] = _rows(
    "prv",
    "epsilon pld",
    (0.270403, 0.8, 0.001, 100, 1e-6),
    (6.209969, 1.5, 0.05, 1000, 1e-6),
    (0.0712188, 2.0, 0.001, 1000, 1e-6),
    (3.381221, 3.0, 0.2, 100, 1e-6),
    (0.437005, 1.5, 0.001, 20000, 1e-6),
    (24.942006, 3.0, 0.05, 50000, 1e-6),
)
