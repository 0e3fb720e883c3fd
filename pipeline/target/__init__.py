"""The model whose output must be kept: where it is, its shape, its weights, its tokenizer."""
