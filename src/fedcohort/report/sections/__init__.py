"""The page's sections, one module each: a function of the run that returns a `Section` or None.

To add one, write its module and list its function in `fedcohort.report.page.SECTIONS`.
"""
