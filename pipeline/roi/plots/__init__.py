"""Plots of the verdict: where cells stand against break-even, and what a step is made of."""
