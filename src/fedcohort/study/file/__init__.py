"""A study file: read with line numbers, checked, and as the terms that are sent to sites."""
