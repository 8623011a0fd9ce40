"""Training of networks over sites: strategies, local training, schedules, optimisers."""
