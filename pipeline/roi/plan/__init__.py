"""The plan: where the verify step's milliseconds are and what removes them, in order of gain."""

from pipeline.report.plan import NAME, in_order, plan_blocks, write_plan
from pipeline.roi.plan.parts import Part
from pipeline.roi.step_anatomy import Anatomy, anatomy

__all__ = ["NAME", "Anatomy", "Part", "anatomy", "in_order", "plan_blocks", "write_plan"]
