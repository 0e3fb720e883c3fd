"""Two versions of the code, each in a process of its own."""
