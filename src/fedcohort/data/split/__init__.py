"""Drawing rows: sites of one table, blind rows in thirds, folds."""
