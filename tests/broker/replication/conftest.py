"""Fixtures of the tests that follow a leader."""

from tests.broker.replication.following_broker import broker, leader, port

__all__ = ["broker", "leader", "port"]
