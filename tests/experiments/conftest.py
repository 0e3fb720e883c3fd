"""The stand-in for SGLang also serves the scripts that start real servers."""

from tests.pipeline.conftest import empty_store
from tests.pipeline.engine.sglang.conftest import driver_says, folder, python

__all__ = ["driver_says", "empty_store", "folder", "python"]
