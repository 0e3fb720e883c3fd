"""The machine that a sweep runs on: lock, leftovers, load, provenance, cache."""
