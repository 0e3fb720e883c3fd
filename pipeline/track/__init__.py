"""MLflow: a parent run per sweep, a child run per cell, and the way back.

The only package that imports MLflow, only when it is used, and only in the driver. Everything here
can be repeated: runs are found by their tags and only what differs is sent, so that logging a cell
as it ends, finishing a sweep and `python -m pipeline.track sync` are one code path.
"""

from pipeline.track.client import TrackerAway, answering
from pipeline.track.stored import load
from pipeline.track.tracker import Tracker

__all__ = ["Tracker", "TrackerAway", "answering", "load"]
