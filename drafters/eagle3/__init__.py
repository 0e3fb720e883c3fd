"""EAGLE-3: a one-layer drafter that reads the target's hidden states, and how it is trained."""
