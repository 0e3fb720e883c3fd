"""Drafters: what proposes draft tokens, one module each."""
