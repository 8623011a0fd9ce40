"""A site's side of a study: its table, the questions that it accepts, and its replies."""
