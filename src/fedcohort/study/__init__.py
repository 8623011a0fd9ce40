"""From a study file, or a notebook, to fitted models and their evaluation.

    api, study      what a notebook calls
    file/           reads a study file and checks it; the terms of it that travel to sites
    sites/          tables as sites: cohort, blind rows, training rows
    at_site/        what happens at a site: its table, what it agrees to, what it tells
    run/            fits, tuning, resumption; in this process or over a network
    judge/          metrics and pictures, of pooled rows or from sums over sites
    results/        files, the model card, saved models

Methods are known here by the catalogue only.
"""
