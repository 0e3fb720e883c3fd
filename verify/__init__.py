"""Verify backends: how the target's forward over root and draft tokens is run, and what proves it."""
