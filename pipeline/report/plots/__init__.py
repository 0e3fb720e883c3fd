"""The report's plots: readable in grey, labelled where the marks are, a laptop wide."""
