"""Engines: transports of a network's bytes between its parties. None knows the other.

Each engine is a package with `Hub` for the coordinator, `Spoke` for sites and people, and
`preflight`; `tls` is common. The bytes have no meaning here.
"""
