"""The contract between coordinator and sites: messages, steps, the two verbs."""

from fedcohort.protocol.errors import (
    DataError,
    FedcohortError,
    InputError,
    JournalMismatch,
    NotConverged,
    NothingToLearn,
    NotSupported,
    Refused,
    SettingError,
    SingularInformation,
    SiteFailed,
    SiteUnavailable,
    StudyError,
    VerbRefused,
)
from fedcohort.protocol.federation import Federation, View, check_all_answered, per_site
from fedcohort.protocol.message import message
from fedcohort.protocol.method import Fitted, Method, Row, Task, check_settings, setting
from fedcohort.protocol.step import Gathered, Keep, Site, Step, Summed, gathered, summed

__all__ = [
    "DataError",
    "FedcohortError",
    "Federation",
    "Fitted",
    "Gathered",
    "InputError",
    "JournalMismatch",
    "Keep",
    "Method",
    "NotConverged",
    "NotSupported",
    "NothingToLearn",
    "Refused",
    "Row",
    "SettingError",
    "SingularInformation",
    "Site",
    "SiteFailed",
    "SiteUnavailable",
    "Step",
    "StudyError",
    "Summed",
    "Task",
    "VerbRefused",
    "View",
    "check_all_answered",
    "check_settings",
    "gathered",
    "message",
    "per_site",
    "setting",
    "summed",
]
