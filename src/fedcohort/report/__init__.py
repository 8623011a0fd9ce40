"""Results of a run as one page that opens offline, and as plain words for the command line.

Everything here is drawn by this package itself, as SVG inside the page: no script, no font, no
image and no address outside the file, so that the page can be sent, archived and printed, and
a browser without network shows all of it.
"""

from fedcohort.report.disclosure import plain_ledger
from fedcohort.report.page import write
from fedcohort.report.tables import summary_table

__all__ = ["plain_ledger", "summary_table", "write"]
