"""Prompts of different lengths."""

from pipeline.workload.prompts import Prompt

PROMPTS = [Prompt(f"p{i}", "chat", tuple(range(3, 9 + i))) for i in range(3)]
