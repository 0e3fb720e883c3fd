"""The stand-in for SGLang also serves the scripts that start real servers."""

from tests.pipeline.conftest import empty_store
from tests.pipeline.engine.sglang.conftest import folder, python

__all__ = ["empty_store", "folder", "python"]
