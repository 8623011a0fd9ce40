"""A site's half of a private fit: it adds the noise, counts releases, and refuses others.

The site derives the fit's releases from the approved study alone (`Method.private`). So, whatever a
coordinator sends,

* a step outside the list is refused before a row is read, with every reply that is exact;
* a step is answered as often, and with the noise, as the list says;
* records are sampled with the list's probability; another one is refused, as is any argument that
  the study determines (a plan, a rate, groups, a clip) and that differs;
* a call counts whole from its admission, before a row is read: its failure may depend on the noise
  or a row, and so is an answer too;
* what an argument chooses (a clipping norm, say) is in the step's sensitivity, and noise grows with
  it (`protocol.private.Private`).

Each of k fields of a reply gets √k times the Gaussian noise of its own sensitivity (k times, of
Laplace). Gaussian: with Δ_f and σ_f = √k z Δ_f, the fields over their σ_f are one vector, which one
unit moves by at most √(Σ_f Δ_f²/σ_f²) = 1/z in L2: one release of multiplier z. Laplace: the same
in L1.

A site with n patients in the study refuses a δ of a fit above 1/n: such a δ admits a mechanism that
publishes one patient's record. It also refuses with fewer than `LEAST_ROWS` training rows, whose
noise would exceed their contribution.

On a node, steps draw samples and groups from the operating system's generator: the coordinator
knows the study's seed, and a sample that it can compute hides nobody. In a simulation all draws
derive from the seed and the identity of the fit (`stream`): two runs agree, two arms have their own
noise, and the result must not be published as private.

Revealed: replies with noise; by a refusal, the rule; that n is below `LEAST_ROWS` or above 1/δ.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.mechanisms import perturb
from fedcohort.privacy.noise import Source
from fedcohort.protocol.errors import Refused, SettingError
from fedcohort.protocol.message import PARAMETER_BITS, parameters_of
from fedcohort.protocol.private import Dp, Release, Spent

#: A site with fewer rows takes no part in a private fit.
LEAST_ROWS = 20


class Tally(Protocol):
    """Count of releases: in memory, or on a node's disk, across studies."""

    def reserve(self, history: str) -> None:
        """Reserve a fit's (ε, δ) in the site's budget, once for each history.

        Raises
        ------
        Refused : "budget": less is left.
        """
        ...

    def taken(self, history: str, step: str) -> int:
        """Return the number of noisy answers of a step in this history."""
        ...

    def take(self, history: str, step: str, n: int, most: int) -> None:
        """Count n more answers, before any noise is drawn; the reserved amount is spent now.

        The count is stored before this returns.

        Raises
        ------
        Refused : "budget": they would be more than `most`, for example because another process has
            answered since the call was admitted.
        """
        ...


def beyond(step: str, most: int) -> Refused:
    """Return the error for noisy answers beyond the releases of a fit."""
    return Refused("budget", f"step {step} has had its {most} noisy answers. Start a new fit.")


@dataclass
class Counted:
    """A tally in memory, for a simulation: there is no budget."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def reserve(self, history: str) -> None:
        """See `Tally`."""

    def taken(self, history: str, step: str) -> int:
        """See `Tally`."""
        return self.counts.get((history, step), 0)

    def take(self, history: str, step: str, n: int, most: int) -> None:
        """See `Tally`."""
        if (more := self.taken(history, step) + n) > most:
            raise beyond(step, most)
        self.counts[history, step] = more


@dataclass(frozen=True)
class SiteGuard:
    """One site's guard of one fit; see `protocol.private.Guard`.

    Attributes
    ----------
    site, method : their names.
    releases : all releases of the fit.
    dp : the study's request.
    rows : the site's training rows.
    seed : of a simulation; None on a node.
    patients : all rows of the study at the site; `rows` if they are more.
    held : step → argument → its value by the study; other values are refused.
    stream : identity of the fit, in a simulation: other fits have other noise.
    """

    site: str
    method: str
    releases: Sequence[Release]
    dp: Dp
    rows: int
    seed: int | None = None
    tally: Tally = field(default_factory=Counted)
    patients: int = 0
    held: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    stream: str = ""

    @classmethod
    def simulated(
        cls,
        site: str,
        method: str,
        releases: Sequence[Release],
        dp: Dp,
        rows: int,
        seed: int,
        **more: Any,
    ) -> Self:
        """Return a guard whose noise follows from the study's seed."""
        return cls(site, method, tuple(releases), dp, rows, seed, **more)

    def admit(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """See `Guard`."""
        step = call.step
        release = self._release(step.name)
        if not step.private:
            raise self.refused(f"step {step.name} gives exact replies, and this fit is private.")
        self.check_table()
        if arguments.get("sampling", 1.0) != release.sampling:
            raise self.refused(
                f"step {step.name} is asked to sample records in another way than the study says."
            )
        for name, value in self.held.get(step.name, {}).items():
            if name not in arguments or not _same(arguments[name], value):
                raise self.refused(
                    f"step {step.name} is asked with another {name!r} than the study says."
                )
        if self.tally.taken(call.history, step.name) + _answers(release) > release.count:
            raise Refused(
                "budget",
                f"site {self.site!r}: the fit has had its {release.replies} "
                f"repl{'y' if release.replies == 1 else 'ies'} of step {step.name}; more would "
                f"cost more than its epsilon. Start a new fit.",
            )
        self.tally.reserve(call.history)
        self.tally.take(call.history, step.name, _answers(release), release.count)

    def check_table(self) -> None:
        """Refuse a table that is too small for a private fit, or too large for its δ.

        Raises
        ------
        Refused : "dp"; the message has the broken rule.
        """
        if self.dp.unit != "record":
            return
        if self.rows < LEAST_ROWS:
            raise self.refused(
                f"it has fewer than {LEAST_ROWS} rows, too few for a private fit. Leave the site "
                f"out, or join it with another (data.sites: min_rows and small)."
            )
        if self.dp.delta * max(self.rows, self.patients) > 1.0:
            raise self.refused(
                f"delta {self.dp.delta:g} is above one over its number of patients, so that one "
                f"of them could be published whole. Lower privacy.dp.delta."
            )

    def entropy(self, call: Any) -> tuple[int, ...] | None:
        """See `Guard`."""
        return (secrets.randbits(256), call.number) if self.seed is None else None

    def protect(
        self,
        call: Any,
        reply: dict[str, Array],
        sensitivity: Mapping[str, float] | None,
        share: int,
    ) -> tuple[dict[str, Array], Spent | None]:
        """See `Guard`."""
        coarse = parameters_of(call.step.reply)
        noisy = self.perturbed(call.step.name, self.source(call), reply, sensitivity, share, coarse)
        return noisy, self.spent(call)

    def drawing(self, call: Any) -> SiteDrawing:
        """See `Guard`."""
        return SiteDrawing(self, call, self.source(call), _answers(self._release(call.step.name)))

    def perturbed(
        self,
        name: str,
        source: Source,
        answer: dict[str, Array],
        sensitivity: Mapping[str, float] | None,
        share: int = 1,
        coarse: Collection[str] = (),
    ) -> dict[str, Array]:
        """Return the fields with their noise; those in `coarse` are on the grid of parameters."""
        release = self._release(name)
        if sensitivity is None or set(sensitivity) != set(answer):
            raise self.refused(f"step {name} gave a reply without the sensitivity of each field.")
        if not all(math.isfinite(d) and d > 0 for d in sensitivity.values()):
            raise self.refused(f"step {name} states no sensitivity above 0.")
        gaussian = release.mechanism == "gaussian"
        noise = release.noise * (math.sqrt(len(answer)) if gaussian else len(answer))
        try:
            return {
                field: perturb(
                    source, exact, sensitivity=sensitivity[field], noise=noise,
                    mechanism=release.mechanism, share=share,
                    resolution=2.0**-PARAMETER_BITS if field in coarse else 0.0,
                )
                for field, exact in answer.items()
            }  # fmt: skip
        except SettingError as error:
            raise self.refused(f"step {name}: {error}") from None

    def _release(self, name: str) -> Release:
        release = next((r for r in self.releases if r.step == name), None)
        if release is None:
            raise self.refused(
                f"step {name} is none of what a private fit of {self.method!r} may release."
            )
        return release

    def spent(self, call: Any) -> Spent:
        """Return what has been spent, with all that `admit` counted."""
        so_far = [
            dataclasses.replace(r, count=n)
            for r in self.releases
            if (n := self.tally.taken(call.history, r.step))
        ]
        spent = cumulative(tuple(so_far), tuple(self.releases), self.dp)
        return Spent(self._release(call.step.name).mechanism, spent, self.dp.delta)

    def source(self, call: Any) -> Source:
        """Return the source of noise of a call."""
        if self.seed is None:
            return Source.system()
        stream = (self.stream,) * bool(self.stream)
        return Source.seeded(self.seed, *stream, self.site, call.number, call.step.name)

    def refused(self, text: str) -> Refused:
        """Return the error for a broken rule."""
        return Refused("dp", f"site {self.site!r}: {text}")


@dataclass
class SiteDrawing:
    """Noisy answers of one call; see `protocol.private.Drawing`.

    All use one stream of noise. `SiteGuard.admit` counted a reply's largest number of answers
    before the first, so a failed call has spent as much as an answered one.

    Attributes
    ----------
    guard : of the site.
    call : the `Call` in progress.
    source : of the noise.
    most : largest number of answers.
    """

    guard: SiteGuard
    call: Any
    source: Source
    most: int
    drawn: int = 0

    def draw(
        self, answer: dict[str, Array], sensitivity: Mapping[str, float] | None
    ) -> dict[str, Array]:
        """See `Drawing`."""
        name = self.call.step.name
        if self.drawn >= self.most:
            raise Refused(
                "budget",
                f"site {self.guard.site!r}: step {name} asks for more than {self.most} noisy "
                f"answers in one reply, which is all that the study says. Ask for fewer.",
            )
        noisy = self.guard.perturbed(name, self.source, answer, sensitivity)
        self.drawn += 1
        return noisy

    def close(self) -> Spent:
        """See `Drawing`."""
        if not self.drawn:
            raise self.guard.refused(
                f"step {self.call.step.name} gave a reply without a single noisy answer."
            )
        return self.guard.spent(self.call)


def _answers(release: Release) -> int:
    """Return the number of noisy answers that one reply counts for."""
    return min(release.draws, release.count)


def _same(asked: Any, value: Any) -> bool:
    """Return whether an argument equals the study's value; arrays must agree in type and shape
    too.
    """
    if isinstance(value, np.ndarray):
        return (
            isinstance(asked, np.ndarray)
            and asked.dtype == value.dtype
            and np.array_equal(asked, value)
        )
    return not isinstance(asked, np.ndarray) and bool(asked == value)


@lru_cache(maxsize=4096)
def cumulative(so_far: tuple[Release, ...], fit: tuple[Release, ...], dp: Dp) -> float:
    """Return an ε for the releases so far at dp.delta: at most that of the whole fit.

    Gaussian releases without sampling compose to one Gaussian, 1/z² = Σ 1/z_i², whose ε is exact.
    Others use the next power of two of their counts, whose ε is no smaller.
    """
    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    if all(r.mechanism == "gaussian" and r.sampling == 1.0 for r in so_far):
        joined = 1.0 / math.sqrt(sum(r.count / r.noise**2 for r in so_far))
        return accounting.epsilon((Release(step="all", noise=joined),), dp.delta)
    limit = accounting.epsilon(fit, dp.delta)
    counts = {r.step: r.count for r in fit}
    more = [
        dataclasses.replace(r, count=min(counts[r.step], 1 << (r.count - 1).bit_length()))
        for r in so_far
    ]
    if sum(r.count for r in more) >= sum(counts.values()):
        return limit
    return min(limit, accounting.epsilon(tuple(more), dp.delta))
