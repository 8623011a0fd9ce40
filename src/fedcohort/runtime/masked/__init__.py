"""Masked sums over a runtime: their messages, the site's end, and the coordinator's side."""
