"""When a timed difference is a regression."""
