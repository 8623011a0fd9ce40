"""Losses of a reconstruction, and the noise of its input.

Thesis 003, eqs. 4.1 and 4.2, the sign of the cross-entropy corrected. With a row x of n (p entries,
in [0, 1] if β > 0) and its reconstruction y:

    L = (1−β) MSE + β (Dice + BCE)                                                        (1)
    MSE = Σ_j (x_j − y_j)²/p                                                              (2)
    Dice = 1 − 2 Σ_j x_j y_j / (Σ_j x_j + Σ_j y_j)                                        (3)
    BCE = −Σ_j [x_j ln y_j + (1 − x_j) ln(1 − y_j)]/p                                     (4)

each averaged over rows. Dice is soft (y is real) and per row, as in the thesis, which sums
over features. So L of several sites is the weighted mean of theirs, and the batch size does not
change it. A row of zeros has Dice 1 for every y; it learns from MSE and BCE. In (3) and (4)
y is clipped to [`LEAST`, 1 − `LEAST`], with zero slope beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

#: Smallest probability, and smallest distance from 1, in eqs. (3) and (4).
LEAST = 1e-6

#: Noises by the name users type.
NOISES = ("none", "corruption", "flip", "gaussian")

#: Mean of Gaussian noise: thesis 003, section 4.1.1.
CENTRE = 0.5

_TAG = 0x6E6F6973


def mse(y: Tensor, x: Tensor) -> Tensor:
    """Return the mean of eq. (2) over the rows of y and x (n, p)."""
    return functional.mse_loss(y, x)


def dice(y: Tensor, x: Tensor) -> Tensor:
    """Return the mean of eq. (3) over the rows of y and x (n, p)."""
    y = y.clamp(LEAST, 1.0 - LEAST)
    return (1.0 - 2.0 * (x * y).sum(dim=1) / (x + y).sum(dim=1)).mean()


def bce(y: Tensor, x: Tensor) -> Tensor:
    """Return the mean of eq. (4) over the rows of y and x (n, p)."""
    return functional.binary_cross_entropy(y.clamp(LEAST, 1.0 - LEAST), x)


def mixed(y: Tensor, x: Tensor, beta: float) -> Tensor:
    """Return the mean of eq. (1) over the rows of y and x (n, p)."""
    if not beta:
        return mse(y, x)
    return (1.0 - beta) * mse(y, x) + beta * (dice(y, x) + bce(y, x))


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise on an input before it is encoded in a training step.

    Attributes
    ----------
    kind : "none"; "corruption": entries become 0; "flip": entries are redrawn, 1 with the column's
        frequency of ones, which keeps that frequency (D6.2, section 7.4.1); "gaussian": noise with
        mean 0.5 is added, and the sum cut to [0, 1] (thesis 003, section 4.1.1), so that ones
        mostly stay ones, and zeros become about a half.
    rate : probability that an entry is changed, independently; for "gaussian" the standard
        deviation, in units of an entry.
    frequencies : for "flip": frequency of ones in each column (p,), over all sites.
    """

    kind: str = "none"
    rate: float = 0.0
    frequencies: tuple[float, ...] = ()

    @property
    def draws(self) -> bool:
        """Whether random numbers are drawn."""
        return self.kind == "gaussian" or (self.kind != "none" and self.rate > 0)

    def __call__(self, x: Tensor, seed: int) -> Tensor:
        """Return x (n, p) with noise that depends only on its shape and the seed."""
        if not self.draws:
            return x
        # Dropout layer k draws from seed + k (`models.network`); this stream is another.
        draws = torch.Generator().manual_seed((seed ^ _TAG) & 0xFFFFFFFF)
        return _NOISES[self.kind](self, x, draws)


def _corrupted(noise: Noise, x: Tensor, draws: torch.Generator) -> Tensor:
    return x * (torch.rand(x.shape, generator=draws) >= noise.rate).to(x)


def _flipped(noise: Noise, x: Tensor, draws: torch.Generator) -> Tensor:
    touched = (torch.rand(x.shape, generator=draws) < noise.rate).to(x.device)
    ones = torch.rand(x.shape, generator=draws) < torch.tensor(noise.frequencies)
    return torch.where(touched, ones.to(x), x)


def _blurred(noise: Noise, x: Tensor, draws: torch.Generator) -> Tensor:
    added = CENTRE + noise.rate * torch.randn(x.shape, generator=draws)
    return (x + added.to(x)).clamp(0.0, 1.0)


_NOISES: Mapping[str, Callable[[Noise, Tensor, torch.Generator], Tensor]] = {
    "corruption": _corrupted,
    "flip": _flipped,
    "gaussian": _blurred,
}
