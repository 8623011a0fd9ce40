"""The sites of a study: their tables, who is in the cohort, and which rows are blind."""
