"""What happens at a site: its own table, what it agrees to be asked, and what it tells."""
