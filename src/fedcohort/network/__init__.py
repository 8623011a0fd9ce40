"""Real networks of hospitals: who is who, what a site allows, and the services at both ends.

A party has a *kit*: its certificate, its key, and where the coordinator is. A study goes to the
sites as signed text, never as code; each site's policy or data steward accepts or refuses it; then
the coordinator's calls reach the site's rows through `runtime.site.site_end`, sealed from end to
end, so that no engine in between has to be trusted. Engines (NVIDIA FLARE, Flower) carry bytes, and
live in `fedcohort.engines`.
"""

from importlib.util import find_spec

from fedcohort.protocol.errors import NotSupported

if find_spec("cryptography") is None:
    raise NotSupported(
        "a network needs the package 'cryptography': pip install 'fedcohort[flare]'."
    )
