"""Which measured cells count: proven, lossless, comparable."""
