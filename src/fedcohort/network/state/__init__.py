"""What a site keeps about a network: studies, decisions, ledger, cohorts, budget and its policy."""
