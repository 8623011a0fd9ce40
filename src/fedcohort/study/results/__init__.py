"""The files of a finished study: results.json and tables, the model card, and saved models."""
