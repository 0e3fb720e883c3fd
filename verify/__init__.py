"""Verify backends: how the target runs over root and draft tokens, and what proves it."""
