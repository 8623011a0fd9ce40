"""The party in the middle: takes studies from leads, asks the sites, and runs the studies."""
