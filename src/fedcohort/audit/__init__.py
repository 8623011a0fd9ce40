"""Attacks that we run on our own runs: what a curious reader of messages and models could learn.

Each audit is a measurement, and no proof: it shows what these attacks find, and where they find
nothing another attack may find something. All but the bound of `one_run` need the rows, so they are
made where the rows may be seen: on a study that was simulated in one process. No site reveals
anything in an audit; it replays what a run revealed, and judges it against the rows.

    inversion    records from the first update of a network      `gradients`, `inversion`
    membership   who was trained on, from the final model        `scores`, `membership`
    epsilon      a lower bound of ε from one run with canaries   `one_run`, `canaries`, `epsilon`
    linkage      patients from the steps of a published curve    `linkage`
"""
