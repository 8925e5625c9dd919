"""Fixtures for all tests."""

from tests.kit.broker_process import broker, make_broker, topic
from tests.kit.zookeeper import zookeeper, zookeeper_server

__all__ = ["broker", "make_broker", "topic", "zookeeper", "zookeeper_server"]
