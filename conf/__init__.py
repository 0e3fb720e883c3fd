"""Hydra configs: one cell on one screen, and the groups that it is chosen from."""
