"""Training of an EAGLE-3 head."""
