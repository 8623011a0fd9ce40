"""The site side of every runtime: look up a step, check the verb, run it, check the reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedcohort.arrays import Array
from fedcohort.protocol.errors import FedcohortError, SiteFailed, VerbRefused
from fedcohort.protocol.federation import View
from fedcohort.protocol.message import checked, to_arrays
from fedcohort.protocol.step import Keep, Site, Step, entropy


@dataclass(frozen=True)
class Call:
    """One question to the sites: what is asked, under which verb, and its number in the run."""

    number: int
    step: Step[..., Any]
    verb: str
    view: View | None
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """The arrays that leave a site, and those that it keeps (None: its state is unchanged)."""

    reply: dict[str, Array]
    state: dict[str, Array] | None


class Host:
    """One site: its data, its state, and the steps it agrees to run.

    Views are applied once and remembered, so that preprocessing costs one pass per fit.
    """

    def __init__(self, name: str, data: object, steps: Iterable[Step[..., Any]], seed: int = 0):
        self.name = name
        self.seed = seed
        self.state: dict[str, Array] | None = None
        self._data = data
        self._steps = {s.name: s for s in steps}
        self._seen: dict[str, Any] = {}

    def data_through(self, view: View | None) -> Any:
        """Return this site's data as steps see it through `view`."""
        if view is None:
            return self._data
        key = view.spec
        if key not in self._seen:
            self._seen = {key: view(self._data)}
        return self._seen[key]

    def answer(self, call: Call, arguments: Mapping[str, Any]) -> Answer:
        """Run one step on this site's data.

        Raises
        ------
        VerbRefused : the step is unknown here, or may not be revealed in the way asked.
        SiteFailed : the step broke, or its reply may not leave the site; the message names the
            kind of failure, never its text, which may hold a patient's value.
        """
        step = self._steps.get(call.step.name)
        if step is None:
            raise VerbRefused(
                f"site {self.name!r} does not know the step {call.step.name!r}; it agreed to "
                f"{sorted(self._steps)}. Register the method that declares the step."
            )
        if step.verb != call.verb:
            raise VerbRefused(
                f"site {self.name!r} refuses {call.verb}({step.name}): only the {step.verb} of "
                f"{step.name} may be revealed. Call fed.{step.verb}({step.name}, ...) instead."
            )
        state = None if step.state is None or self.state is None else step.state(**self.state)
        try:
            site = Site(
                self.name,
                self.data_through(call.view),
                state,
                entropy(self.seed, self.name, call.number),
            )
            out = step.run(site, **arguments)
        except FedcohortError:
            raise
        except Exception as error:
            raise SiteFailed(
                f"site {self.name!r} failed in step {step.name} ({type(error).__name__}). The "
                f"details are in that site's own log; run with --debug where the data may be seen."
            ) from error
        if isinstance(out, Keep):
            return Answer(
                checked(out.reply, step.reply, self.name, step.name), to_arrays(out.state)
            )
        return Answer(checked(out, step.reply, self.name, step.name), None)
