"""Reading tables (files, databases, frames) and dictionaries, and drafting a dictionary."""
