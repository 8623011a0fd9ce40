"""A hospital's node: its policy, its tables, its ledger, and what it answers the coordinator."""
