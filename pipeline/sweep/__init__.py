"""From configs to a finished sweep. Imports nothing: a cell's process loads it before torch."""
