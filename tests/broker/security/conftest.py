"""Fixtures for tests that talk to ZooKeeper."""

from __future__ import annotations

from tests.broker.cluster.conftest import connect

__all__ = ["connect"]
