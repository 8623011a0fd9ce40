"""Attacks on our own runs: what messages and models reveal to a curious reader.

Each audit is a measurement, not a proof: another attack may find more. All but the bound of
`canaries` need the rows, so they run on studies simulated in one process. No site reveals anything
in an audit; it replays what a run revealed, and compares it with the rows.

    inversion    records from the first update of a network      `gradients`, `inversion`
    membership   training rows, from the final model             `scores`, `membership`
    epsilon      a lower bound of ε from one run with canaries   `canaries`, `epsilon`
    linkage      patients from the steps of a published curve    `linkage`

`forgetting` and `forgotten` make a run's models without one hospital, and measure what is left of
it.
"""
