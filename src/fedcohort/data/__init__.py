"""Tables, their dictionary, where they come from, and what is done to them before a fit."""
