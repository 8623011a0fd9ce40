"""Compressed updates: fewer bytes from a site in each round, with error feedback.

A site with n_k rows trains from the common θ (P,) to θ_k and adds the residual e_k of the rounds
before (Seide et al., Interspeech 2014; Stich, Cordonnier, Jaggi, NeurIPS 2018; Karimireddy et al.,
ICML 2019). It sends C(v_k) and keeps the rest:

    v_k = θ_k − θ + e_k,   e_k ← v_k − C(v_k),   θ ← server rule at θ + Σ n_k C(v_k) / n     (1)

random_k  C keeps k = ⌈share·P⌉ coordinates, the same at all sites, drawn anew in each round. So a
          masked sum of k numbers is enough.
int8      C rounds to whole numbers q from −127 to 127, at random so that the mean is right (QSGD,
          Alistarh et al., NIPS 2017). A block b of 256 coordinates has one scale at all sites,
          s_b = Σ_k n_k max|v_kb| / n, the first sum of a round; then

              q_k = round(127 n_k v_k / (n s_b)),   Σ n_k C(v_k)/n = s_b Σ_k q_k / 127       (2)

          |q_k| ≤ 127, because s_b has the site's own term. q + 127 takes b = ⌈log₂(255 K + 1)⌉
          bits in the sum of K sites, and ⌊63/b⌋ numbers are packed into one 64-bit word of the
          ring, in which their sums do not touch. So the words are fewer under masks, too: five
          numbers in a word of 5 to 16 sites.
top_k     C keeps the k coordinates of largest |v_k|. They differ by site. A sum of vectors with
          zeros elsewhere would have all P numbers, and masks need words at the same places at all
          sites: nothing would be gained. So each site sends its own values and places, which the
          coordinator sees; masked sums are refused (`AveragingSettings.visible`).

θ is sent to the sites in full: they keep no θ, and one that was away needs it. A site that was away
sends its residual later. Residuals stay at the site, in `moments.Moments`.

Revealed: with random_k k coordinates of the weighted sum of v_k, each round; with int8 the sum of
the largest |v_k| by block, and then the sum of q_k, which is v_k rounded; with top_k each site's k
largest coordinates. Never more than without compression, but for top_k. A coordinator that sends
smaller scales than s_b gets at the limit the sum of the signs of v_k: a site cannot refuse them
without telling its own largest number. A site answers the second call of a round once, and only
after the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Keep, Site, Step, gathered, message, summed
from fedcohort.protocol.errors import ReplyRejected
from fedcohort.protocol.step import Summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.moments import NOTHING, Moments
from fedcohort.training.networks.plan import Plan, holds_out
from fedcohort.training.networks.replies import Update
from fedcohort.training.networks.thinning import BLOCK, coordinates, places_of

#: Largest |q|.
MOST = 127


@message
class Rounded:
    """Σ (q + 127) of a site, packed into words (w,), its training rows (), and 1 ()."""

    some_rows = staticmethod(holds_out)

    packed: Array
    rows: Array
    sites: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.packed.ndim != 1 or self.packed.dtype != np.int64 or self.rows.shape:
            return "other arrays than one vector of whole numbers and its rows."
        if self.sites.shape or self.sites not in (0, 1) or (self.packed < 0).any():
            return "a number of sites other than 0 or 1, or a word below 0."
        return "numbers of no site." * bool(self.packed.any() and not self.sites)


@message
class Largest:
    """A site's largest coordinates: values (k,), places (k,), and its training rows ()."""

    values: Array
    places: Array
    rows: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.values.ndim != 1 or self.values.shape != self.places.shape or self.rows.shape:
            return "other arrays than values with their places, and a number of rows."
        if self.places.dtype != np.int64 or count_fault("places", self.places):
            return "places that are no whole numbers from 0 up."
        fine = (np.diff(self.places) > 0).all() and (not len(self.places) or asked["size"] > 0)
        inside = not len(self.places) or self.places[-1] < asked["size"]
        return "" if fine and inside else "places twice, or beyond the model."

    def moved(self, asked: Mapping[str, Any]) -> float:
        """Return the length of the values."""
        return float(np.linalg.norm(self.values))


@summed
def send_rounded(
    site: Site[Any, Moments | None], *, plan: str, scales: Array, total: float, bits: int
) -> Keep[Rounded, Moments]:
    """Return what training changed, rounded to 8 bits; keep the rest for the next round.

    Parameters
    ----------
    scales : s_b of each block. total : n. bits : of a number in a word.

    Raises
    ------
    ReplyRejected : the site missed the first call of this round. Zeros would leave the sum to fewer
        other sites, or to one.
    """
    held = site.state or Moments.empty()
    v, n = held.residual, float(held.ready)
    if n == NOTHING:
        raise ReplyRejected(
            f"site {site.name!r} missed the training of this round, so it has no update to send "
            f"and cannot join the sum over sites."
        )
    if not n:  # no rows to learn from
        return Keep(Rounded(pack(np.zeros(0), len(v), bits), *_counts(0.0, 0)), held.sent(v))
    scale = np.repeat(scales, BLOCK)[: len(v)] * total / (MOST * n)
    steps = np.divide(v, scale, out=np.zeros(len(v)), where=scale > 0)
    low = np.floor(steps)
    q = np.clip(low + (site.rng.random(len(v)) < steps - low), -MOST, MOST)
    packed = pack(q + MOST, len(v), bits)
    return Keep(Rounded(packed, *_counts(n, 1)), held.sent(v - q * scale))


@gathered
def send_largest(
    site: Site[Any, Moments | None], *, plan: str, size: int
) -> Keep[Largest, Moments]:
    """Return the largest changes by training, with their places; keep the rest."""
    held = site.state or Moments.empty()
    v, n = held.residual, max(float(held.ready), 0.0)
    k = places_of(Plan.of(plan), len(v)) if n else 0
    at = np.sort(np.argsort(-np.abs(v), kind="stable")[:k])
    left = v.copy()
    left[at] = 0.0
    return Keep(Largest(v[at], at.astype(np.int64), np.array(n)), held.sent(left))


def _counts(rows: float, sites: int) -> tuple[Array, Array]:
    return np.array(rows), np.array(sites)


def bits_of(sites: int) -> int:
    """Return the bits of a number in a word, in a sum of so many sites."""
    return (255 * sites).bit_length()


def pack(q: Array, size: int, bits: int) -> Array:
    """Return numbers from 0 to 254, ⌊63/bits⌋ in a word, int64; zeros for none of `size`."""
    lanes = 63 // bits
    wide = np.zeros(-(-size // lanes) * lanes, np.int64)
    wide[: len(q)] = q
    return (wide.reshape(-1, lanes) << (bits * np.arange(lanes))).sum(axis=1)


def unpack(words: Array, size: int, bits: int) -> Array:
    """Return the sums (size,) of packed numbers."""
    lanes = 63 // bits
    parts = (words[:, None] >> (bits * np.arange(lanes))) & ((1 << bits) - 1)
    return parts.ravel()[:size]


def collected(
    fed: Federation, step: Summed[..., Update], theta: Array, plan: Plan, number: int,
    given: Mapping[str, Any],
) -> tuple[Array, float, float]:  # fmt: skip
    """Ask all sites for a round of training from θ (P,); return the mean update, n, and the loss.

    Parameters
    ----------
    step : keeps the state of a visit at the site.
    number : of the round.
    given : further arguments of the step.
    """
    size, delta = len(theta), np.zeros(len(theta))
    sent = np.append(theta, float(number)) if plan.compression == "random_k" else theta
    total = fed.sum(step, theta=plan.sent(sent), plan=plan.text, **given)
    n = max(float(total.rows), 1.0)
    loss = float(total.loss) / n
    if plan.compression == "random_k":
        delta[coordinates(plan, size, number)] = total.theta / n
        return delta, float(total.rows), loss
    if plan.compression == "int8":
        bits = bits_of(len(fed.sites))
        scales = total.theta / n
        sums = fed.sum(send_rounded, plan=plan.text, scales=scales, total=n, bits=bits)
        q = unpack(sums.packed, size, bits) - MOST * int(sums.sites)
        rows = float(sums.rows)
        delta = q * np.repeat(scales, BLOCK)[:size] / MOST * (n / max(rows, 1.0))
        return delta, rows, loss
    largest = fed.gather(send_largest, plan=plan.text, size=size)
    rows = sum(float(one.rows) for one in largest.values())
    for one in largest.values():
        delta[one.places] += float(one.rows) / max(rows, 1.0) * one.values
    return delta, rows, loss


def asks(compression: str) -> tuple[Step[..., Any], ...]:
    """Return the further steps of a training with compressed updates."""
    found: dict[str, tuple[Step[..., Any], ...]] = {
        "int8": (send_rounded,), "top_k": (send_largest,),
    }  # fmt: skip
    return found.get(compression, ())


#: Allowed arguments of the steps (`Method.bounds`): sums of 1 to 2¹⁵ sites; any size of a model.
BOUNDS: Mapping[str, Any] = {"bits": range(8, 24), "size": range(2**31)}
STEPS = (send_rounded, send_largest)
