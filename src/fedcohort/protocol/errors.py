"""Errors that this package raises on purpose.

* FedcohortError
  * InputError               the user's input is wrong (the command line exits with 2)
    x StudyError             a study file: unknown key, impossible value
    x DataError              a table or its dictionary: missing column, impossible time
      - NothingToLearn       rows that give no model: no event, one class, no column that varies
    x SettingError           a method's setting
  x NotSupported             a method cannot give what was asked of it
  x SiteUnavailable          too few sites answered a call
    - QuorumLost             the run can continue when they are back
      + SitesAway            for a call that waits for its sites
  x SiteFailed               a step failed at a site, or returned what it must not return
    - ReplyRejected          its reply cannot be used: also a QuorumLost
  x VerbRefused              a site was asked to reveal more than the step allows
  x JournalMismatch          a run's journal belongs to another run
  x Refused                  a party of a network does not accept a peer, a study or a message
  x SingularInformation      the pooled information matrix cannot be inverted
  x NotConverged             an optimiser stopped before its tolerance was met

Messages contain names, shapes and counts, never a record: a log line is a disclosure.
"""

from __future__ import annotations

from collections.abc import Collection


class FedcohortError(Exception):
    """Base of all errors that this package raises on purpose.

    Attributes
    ----------
    near_data : whether a step or a view raised it, beside a site's records: then its text does not
        cross a network.
    """

    near_data: bool = False


class InputError(FedcohortError):
    """The user's input is wrong: nothing was computed or written."""


class StudyError(InputError):
    """A study file holds an unknown key or an impossible value."""


class DataError(InputError):
    """A table does not match its study or dictionary."""


class NothingToLearn(DataError):
    """Correct rows give no model: no event, a single class, or no column that varies."""


class SettingError(InputError):
    """A setting of a method is unknown or cannot be used."""


class NotSupported(FedcohortError):
    """A method cannot give what was asked; the message names the methods that can."""


class SiteUnavailable(FedcohortError):
    """Fewer sites than the quorum answered a call."""


class QuorumLost(SiteUnavailable):
    """Too few sites answered a call, which left no trace: the run can continue from there."""


class SitesAway(QuorumLost):
    """Sites are away from a call that waits for them; nothing was revealed.

    Attributes
    ----------
    sites : those that are away.
    """

    def __init__(self, text: str, sites: Collection[str] = ()):
        super().__init__(text)
        self.sites = tuple(sites)


class SiteFailed(FedcohortError):
    """A step failed at a site, or its reply differs from what the step declares."""


class ReplyRejected(SiteFailed, QuorumLost):
    """A site's reply cannot be used: the site counts as missing for that call.

    The run ends with this error if the quorum is lost.
    """


class VerbRefused(FedcohortError):
    """A site was asked for a step with a verb that the step does not allow."""


class JournalMismatch(FedcohortError):
    """A journal does not belong to the run to be resumed."""


class Refused(FedcohortError):
    """A party of a network does not accept a peer, a study or a message.

    Attributes
    ----------
    code : one word for the reason, such as "expired" or "version". Code and text may cross the
        network: the text names only parties, rules and columns.
    """

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


class SingularInformation(FedcohortError):
    """The pooled information matrix cannot be inverted."""


class NotConverged(FedcohortError):
    """An optimiser stopped before its tolerance was met."""
