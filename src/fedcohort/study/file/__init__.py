"""A study file: read with its places, checked, and as the terms that travel to sites."""
