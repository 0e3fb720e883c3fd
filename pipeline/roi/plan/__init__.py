"""The plan: where the verify step's milliseconds are and what removes them, in order of gain."""

from pipeline.roi.plan.anatomy import Anatomy, anatomy
from pipeline.roi.plan.parts import Part
from pipeline.roi.plan.write import NAME, in_order, plan_blocks, write_plan

__all__ = ["NAME", "Anatomy", "Part", "anatomy", "in_order", "plan_blocks", "write_plan"]
