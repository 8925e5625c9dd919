"""What goes wrong with a local cluster, each with a message that says what to do."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster cannot be started, stopped or looked at; the message is for the user."""


class OptionError(ClusterError):
    """What was asked for cannot be."""


class JavaNotFoundError(ClusterError):
    """The embedded ZooKeeper lacks a Java or its jars."""


class PortTakenError(ClusterError):
    """A port that a process needs is in use."""


class StartFailedError(ClusterError):
    """A process ended before it was ready, or was not ready in time."""


class InterruptedStartError(ClusterError):
    """The user asked to stop before everything was ready."""
