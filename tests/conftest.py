"""Tests have a lock of their own each, so that none waits for a sweep of this machine."""

import pytest


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    """Move the machine's lock, here and in every process that a test starts."""
    monkeypatch.setenv("SPECROI_LOCK", str(tmp_path / "specroi.lock"))
