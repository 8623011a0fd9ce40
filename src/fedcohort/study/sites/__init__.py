"""The sites of a study: their tables, its cohort, and the blind rows."""
