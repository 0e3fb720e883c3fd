"""The prompts of a sweep."""
