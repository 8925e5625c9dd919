"""Fixtures for all tests."""

from tests.broker_process import broker, make_broker, topic
from tests.zookeeper import zookeeper, zookeeper_server

__all__ = ["broker", "make_broker", "topic", "zookeeper", "zookeeper_server"]
