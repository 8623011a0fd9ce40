"""What a study leaves: results.json and tables, the model card, and saved models."""
