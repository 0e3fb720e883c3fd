"""The pipeline: cells in, measurements and a verdict out."""
