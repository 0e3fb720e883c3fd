"""The verify step on GPUs."""
