"""The arithmetic of masked sums: whole numbers, masks, and shares of secrets."""
