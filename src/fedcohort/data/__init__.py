"""Tables and their dictionary, from the file to the arrays of a fit.

read       tables and dictionaries from files, databases and frames
check      errors and warnings about a table
split      sites of one table, blind rows, folds
prepare    encoding, imputation and scaling, from sums over sites
describe   Table 1 of each site
outcome    columns of the outcome, and all that depends on its type
encode     columns as numbers and codes, by the dictionary alone
timegrid   intervals of event times, from sums over sites
exact, differences, isolation    rules of exact sums over records
"""
