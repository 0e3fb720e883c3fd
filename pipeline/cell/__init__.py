"""A cell, the engine's seam, and what an engine answers."""
