"""The small torch engine: a Llama-family model with a static cache, on a CPU or on GPUs."""
