"""What a data steward sees and signs: the page of a study, decisions, the record."""
