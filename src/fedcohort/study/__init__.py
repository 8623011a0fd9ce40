"""From a study file, or a notebook, to fitted models and their evaluation.

    api, study      the functions and classes for a notebook
    file/           reads and checks a study file; the terms that are sent to sites
    sites/          tables as sites: cohort, blind rows, training rows
    at_site/        what a site does: its table, its consent, its replies
    run/            fits, tuning, resuming; in this process or over a network
    judge/          metrics and figures, from pooled rows or from sums over sites
    results/        files, the model card, saved models

Methods are reached through the registry only.
"""
