"""Fixtures for the tests of the client."""

from tests.client.clusters import bench

__all__ = ["bench"]
