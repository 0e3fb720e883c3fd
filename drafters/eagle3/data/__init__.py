"""Training data: prompts, answers of the target, its hidden states."""
