"""The map from a drafter's vocabulary to the target's: read, audit, move a head to another."""
