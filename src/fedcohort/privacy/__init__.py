"""Protection of what leaves a site: accounted noise, rules of disclosure, refusals."""
