"""Pure NumPy and SciPy: no tables, no sites, no network."""
