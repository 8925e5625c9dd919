"""Synchronous twins of the clients: the same names and arguments, in calls that block."""

from ottla.client.sync.clients import Admin, Consumer, Producer

__all__ = ["Admin", "Consumer", "Producer"]
