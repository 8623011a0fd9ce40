"""The TRIPOD+AI checklist: a run's answers, and the items for a person to write."""
