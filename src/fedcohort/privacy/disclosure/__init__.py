"""The disclosure rules: which count, curve, grid, leaf, quantile or model is shown.

Pure decisions, with m the `min_cell` (5 by default) of the study or of the site, the larger one:

    counts    no count of 1 to m − 1 is shown, nor a count from which one follows (secondary
              suppression); no results over two sets of patients that differ in 1 to m − 1
    groups    of a table by groups whole levels are hidden, so that no cell follows from its sums
    steps     curves, numbers at risk, bins and grids of times step by m events and m leavers
    numbers   no moments that few values dominate, no extremes, no quantile of fewer than m
    rounding  means and spreads are rounded, so that they do not reveal the number of values
    records   no sum that a few records dominate
    models    leaves of `LEAF` counted patients; a free parameter for `ROWS_EACH` rows of a site

`docs/disclosure.md` says where each is asked, and what it does not prevent.
"""
