"""A study over sites that hold their own rows: what travels, what sites do, what comes out.

    terms = Terms.of("study.yaml")                       # the lead: no data
    table = SiteTable.of(terms, "oslo", frame)           # each site: checked, canonical
    host = open_session(terms, table, "fit-r0000-a00", min_cell=5)
    run(terms, sites, out)                               # the coordinator

`LocalSites` has all sites in this process: the reference that every network must equal.
"""

from fedcohort.study.deployed.runner import Event, OnEvent, run
from fedcohort.study.deployed.sessions import Session, open_session
from fedcohort.study.deployed.sites import LocalSites, Sites
from fedcohort.study.deployed.table import SiteTable, Unfit
from fedcohort.study.deployed.terms import Terms

__all__ = [
    "Event",
    "LocalSites",
    "Session",
    "SiteTable",
    "Sites",
    "OnEvent",
    "Terms",
    "Unfit",
    "open_session",
    "run",
]
