"""Networks of hospitals: kits, each site's policy, and the services of node and coordinator.

A party has a *kit*: its certificate, its key and the coordinator's address. A study reaches the
sites as signed text, never as code; each site's policy or data steward accepts or refuses it.
Calls to a site are sealed end to end (`runtime.site.site_end`): engines (`fedcohort.engines`) carry
bytes and need no trust.
"""

from importlib.util import find_spec

from fedcohort.protocol.errors import NotSupported

if find_spec("cryptography") is None:
    raise NotSupported(
        "a network needs the package 'cryptography': pip install 'fedcohort[flare]'."
    )
