"""Tensor parallelism: a leader and its ranks."""
