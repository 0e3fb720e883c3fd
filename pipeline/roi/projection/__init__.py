"""Predict a cell that was not run from parts that were measured."""

from pipeline.roi.projection.costs import Place, costs
from pipeline.roi.projection.predict import Projection, curves, missing, project
from pipeline.roi.projection.self_check import Errors, Hidden, summarise
from pipeline.roi.projection.width_curve import Estimate

__all__ = [
    "Errors",
    "Estimate",
    "Hidden",
    "Place",
    "Projection",
    "costs",
    "curves",
    "missing",
    "project",
    "summarise",
]
