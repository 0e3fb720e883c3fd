"""What all tests need: a lock of their own each, and Triton's interpreter where there is no GPU."""

import os

import pytest
import torch

# Read when Triton is imported, which the first test's imports may do.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    """Move the machine's lock, here and in every process that a test starts."""
    monkeypatch.setenv("SPECROI_LOCK", str(tmp_path / "specroi.lock"))
