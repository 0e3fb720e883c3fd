"""Predict a cell that was not run from parts that were measured."""
