"""What may leave a site: noise that is counted, rules of disclosure, and what is refused."""
