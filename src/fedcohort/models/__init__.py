"""Networks as flat vectors, and their losses as values and slopes; nothing federated in here."""
