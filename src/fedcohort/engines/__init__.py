"""Engines: what carries a network's bytes between its parties. None knows the other.

Each engine is a package with `Hub` for the coordinator, `Spoke` for sites and people, and
`preflight`; `tls` is what they have in common. Nothing here knows what the bytes mean.
"""
