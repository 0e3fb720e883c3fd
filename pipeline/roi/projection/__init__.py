"""Predict a cell that was not run from parts that were measured."""

from pipeline.roi.projection.costs import Place, costs
from pipeline.roi.projection.hold_out import Errors, Hidden, hold_out, summarise
from pipeline.roi.projection.predict import Projection, curves, missing, project
from pipeline.roi.projection.surface import Estimate, Point, Surface, fit
from pipeline.roi.projection.table import projection_section

__all__ = [
    "Errors",
    "Estimate",
    "Hidden",
    "Place",
    "Point",
    "Projection",
    "Surface",
    "costs",
    "curves",
    "fit",
    "hold_out",
    "missing",
    "project",
    "projection_section",
    "summarise",
]
