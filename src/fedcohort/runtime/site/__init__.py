"""A site's end of a call: bytes of a request to bytes of its answer."""

from fedcohort.runtime.site.limits import Limits
from fedcohort.runtime.site.refusals import disk, error_location
from fedcohort.runtime.site.site_end import Left, SiteEnd

__all__ = [
    "Left",
    "Limits",
    "SiteEnd",
    "disk",
    "error_location",
]
