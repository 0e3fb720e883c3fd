"""The report of a sweep: what to invest in, in words first, then the tables and plots behind it."""

from pipeline.report.tables import terminal_table
from pipeline.report.write import write_report

__all__ = ["terminal_table", "write_report"]
