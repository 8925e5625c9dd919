"""Errors of a local cluster; each message says what to do."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster cannot be started, stopped or inspected; the message is for the user."""

    # Of the command that meets it.
    exit_code = 1


class OptionError(ClusterError):
    """The options are not valid."""

    exit_code = 2


class JavaNotFoundError(ClusterError):
    """There is no Java for the embedded ZooKeeper."""


class ZooKeeperNotFoundError(ClusterError):
    """The jars of the embedded ZooKeeper are missing."""


class InstallError(ClusterError):
    """ZooKeeper cannot be installed."""


class PortTakenError(ClusterError):
    """A port that a process needs is in use."""


class StartFailedError(ClusterError):
    """A process ended before it was ready, or was not ready in time."""


class InterruptedStartError(ClusterError):
    """The user asked to stop before everything was ready."""
