"""Engines run a cell: torch anywhere, SGLang on a GPU box."""
