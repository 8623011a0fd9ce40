"""The disclosure rules, in one place: which count, curve, grid, leaf, quantile or model is shown.

Pure decisions, with m the `min_cell` (5 by default) of the study or of the site, the larger one:

    counts    no count of 1 to m − 1 is shown, nor what one follows from (secondary suppression);
              no results over two sets of patients that differ in 1 to m − 1
    groups    of a table by groups whole levels are hidden, so that no cell follows from its sums
    steps     curves, numbers at risk, bins and grids of times step by m events and m leavers
    numbers   no moments that few make, no extremes, and no quantile of fewer than m
    rounding  means and spreads are rounded, so that they do not tell how many there are
    records   no sum of which nearly all is a few records'
    models    leaves of `LEAF` counted patients; a free parameter for `ROWS_EACH` rows of a site

Who looks at the data asks these; nothing here does. `docs/disclosure.md` says where each is asked,
and what it does not stop.
"""
