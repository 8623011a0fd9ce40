"""The TRIPOD+AI checklist: what a run can answer, and what a person must write."""
