"""What the tests want of the machine beside Python: said in one line at the start, where something is missing."""

from __future__ import annotations

import os
import shutil
import signal
import sys

from tests.kit.apache_kafka import UnavailableError, java

# Commands, each with what it is for.
_COMMANDS = {"kcat": "a client", "mvn": "Apache Kafka's jars", "chromium": "the console's pages"}
_LINUX_COMMANDS = {"ip": "hosts", "iptables": "hosts", "nsenter": "hosts", "mkfs.ext4": "disks"}


def missing() -> list[str]:
    """Return what is not here, each with what it is for."""
    found: list[str] = []
    try:
        java()
    except UnavailableError as error:
        found.append(f"Java ({error})")
    commands = _COMMANDS | (_LINUX_COMMANDS if sys.platform == "linux" else {})
    found += [f"{command} ({use})" for command, use in commands.items() if shutil.which(command) is None]
    if sys.platform == "linux" and os.geteuid() != 0:
        found.append("root (hosts and disks of their own)")
    return found


def pytest_configure() -> None:
    """Let processes of tests have the signals that a terminal gives them.

    A shell that starts a run in the background has SIGINT ignored, for good, and nohup does the same with SIGHUP. What
    has a handler here has its default in the processes that are started.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_report_header() -> str:
    """Say what is missing, and what becomes of the tests that want it."""
    if not (lacking := missing()):
        return "machine: everything that the tests want is here"
    outcome = "fail" if os.environ.get("CI") else "are skipped"
    return f"machine: missing {', '.join(lacking)}; tests that want it {outcome}; see scripts/system-packages"
