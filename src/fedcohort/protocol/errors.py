"""Everything this package raises on purpose.

* FedcohortError
  * InputError               what the user gave is wrong (the command line exits with 2)
    x StudyError             a study file: unknown key, impossible value
    x DataError              a table or its dictionary: missing column, impossible time
      - NothingToLearn       rows that give no model: no event, one class, no column that varies
    x SettingError           a method's setting
  x NotSupported             a method cannot give what was asked of it
  x SiteUnavailable          too few sites answered a call
    - QuorumLost             and the run can go on from there when they are back
      + SitesAway            of a call that waits for its sites
  x SiteFailed               a step broke, or gave what it must not give, at a site
    - ReplyRejected          its reply is not fit to be used: a QuorumLost as well
  x VerbRefused              a site was asked to reveal more than the step allows
  x JournalMismatch          a run's journal belongs to another run
  x Refused                  a party of a network does not accept a peer, a study or a message
  x SingularInformation      the pooled information matrix cannot be inverted
  x NotConverged             an optimiser gave up

Messages carry names, shapes and counts, never a record: a log line is a disclosure.
"""

from __future__ import annotations

from collections.abc import Collection


class FedcohortError(Exception):
    """Base of all errors raised on purpose by this package.

    Attributes
    ----------
    near_data : whether a step or a view raised it, beside a site's records: its text then does not
        cross a network.
    """

    near_data: bool = False


class InputError(FedcohortError):
    """What the user gave is wrong: nothing was computed, nothing was written."""


class StudyError(InputError):
    """A study file holds an unknown key or an impossible value."""


class DataError(InputError):
    """A table does not hold what its study or dictionary says."""


class NothingToLearn(DataError):
    """Sound rows give no model: no event, a single class, or no column that varies."""


class SettingError(InputError):
    """A method was given a setting that it does not know or cannot use."""


class NotSupported(FedcohortError):
    """A method cannot give what was asked; the message names those which can."""


class SiteUnavailable(FedcohortError):
    """Fewer sites than the quorum answered a call."""


class QuorumLost(SiteUnavailable):
    """Too few sites answered a call, which left no trace: the run can go on from there."""


class SitesAway(QuorumLost):
    """Sites are away from a call that waits for them, which told nothing.

    Attributes
    ----------
    sites : those that are away.
    """

    def __init__(self, text: str, sites: Collection[str] = ()):
        super().__init__(text)
        self.sites = tuple(sites)


class SiteFailed(FedcohortError):
    """A step broke at a site, or its reply is not what the step declares."""


class ReplyRejected(SiteFailed, QuorumLost):
    """A site's reply is not fit to be used: the site counts as missing for that call.

    The run ends with it where the quorum does not allow that.
    """


class VerbRefused(FedcohortError):
    """A site was asked for a step with a verb the step does not allow."""


class JournalMismatch(FedcohortError):
    """A journal does not belong to the run that is being resumed."""


class Refused(FedcohortError):
    """A party of a network does not accept a peer, a study or a message.

    Attributes
    ----------
    code : one word for what was wrong, such as "expired" or "version"; it may cross the network,
        and so may the text, which names parties, rules and columns alone.
    """

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


class SingularInformation(FedcohortError):
    """The pooled information matrix cannot be inverted."""


class NotConverged(FedcohortError):
    """An optimiser stopped before its tolerance was met."""
