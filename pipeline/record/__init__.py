"""What is kept of a cell and of a sweep, on disk."""
