"""Several hosts on one machine: network namespaces on a bridge, between which packets can be dropped.

    hub     a bridge, and one end of a cable to each host
    host    the other end as eth0, with an address of its own

A namespace lives as long as its processes. The first of each only sleeps, and ends with the test run however that
ends; nothing has a name outside, so nothing is left behind and runs do not meet.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.kit.apache_kafka import UnavailableError
from tests.kit.guarded_process import GuardedProcess
from tests.kit.hosts import Host
from tests.kit.waiting import until

from ottla.client.local_cluster.ports import FREE_PORT_RANGE, is_free

TIMEOUT_S = 30
TOOLS = ("ip", "iptables", "nsenter", "unshare")
_CLONE_NEWNET = 0x40000000
_DROPPED = re.compile(r"^\s*(\d+)\s+\d+\s+DROP\b", re.MULTILINE)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamespaceHost(Host):
    """A host that is the network namespace of a process."""

    pid: int = 0

    def command(self, command: Sequence[str]) -> list[str]:
        """Enter the namespace, then become the command."""
        return ["nsenter", f"--target={self.pid}", "--net", "--", *command]

    def call(self, function: Callable[[], T]) -> T:
        """Call it in a thread that has entered the namespace; threads are in the namespace of their maker."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                _enter(self.pid)
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name=f"in {self.address}")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def free_port(self, taken: AbstractSet[int] = frozenset()) -> int:
        """Return a port that nobody uses there. None is held: a socket would keep the namespace alive."""
        return self.call(
            lambda: next(port for port in FREE_PORT_RANGE if port not in taken and is_free(self.address, port))
        )

    def run(self, *command: str) -> str:
        """Run a short command there; return what it says."""
        return _run(self.command(command))


def _enter(pid: int) -> None:
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)


class NamespaceNetwork:
    """Hosts by name, each of which reaches all others until something is cut."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        check_available()
        self._folder = folder
        self._processes: list[GuardedProcess] = []
        self._dropped = 0
        try:
            self._hub = self._new("")
            self._hub.run("ip", "link", "add", "name", "bridge", "type", "bridge")
            self._hub.run("ip", "link", "set", "bridge", "up")
            self.hosts = {name: self._attached(name, number) for number, name in enumerate(names, 1)}
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove everything; processes that still run in it keep their namespace until they end."""
        while self._processes:
            with suppress(subprocess.TimeoutExpired):
                self._processes.pop().end(signal.SIGKILL)

    def cut(self, one: str, *others: str) -> None:
        """Drop every packet between one host and some others, both ways."""
        for other in others:
            address = self.hosts[other].address
            self.hosts[one].run("iptables", "--wait", "-I", "INPUT", "-s", address, "-j", "DROP")
            self.hosts[one].run("iptables", "--wait", "-I", "OUTPUT", "-d", address, "-j", "DROP")

    def cut_one_way(self, sender: str, receiver: str) -> None:
        """Drop every packet from one host to another; answers to those that still arrive get through."""
        address = self.hosts[sender].address
        self.hosts[receiver].run("iptables", "--wait", "-I", "INPUT", "-s", address, "-j", "DROP")

    def lose(self, name: str, share: float) -> None:
        """Drop some of the packets that reach a host, by chance."""
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}")
        self.hosts[name].run("iptables", "--wait", "-I", "INPUT", "-i", "eth0", *chance, "-j", "DROP")

    def dropped_packets(self) -> int:
        """Count what was dropped, all hosts together, since the network is there."""
        return self._dropped + sum(self._dropped_now(host) for host in self.hosts.values())

    def heal(self) -> None:
        """Let everything through again."""
        self._dropped = self.dropped_packets()
        for host in self.hosts.values():
            host.run("iptables", "--wait", "-F")

    def _dropped_now(self, host: NamespaceHost) -> int:
        listed = host.run("iptables", "--wait", "-L", "-v", "-x", "-n")
        return sum(int(count) for count in _DROPPED.findall(listed))

    def _attached(self, name: str, number: int) -> NamespaceHost:
        host = self._new(f"10.77.0.{number}")
        self._hub.run(
            "ip", "link", "add", "name", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(host.pid)
        )
        self._hub.run("ip", "link", "set", f"to-{name}", "master", "bridge", "up")
        host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        host.run("ip", "link", "set", "lo", "up")
        return host

    def _new(self, address: str) -> NamespaceHost:
        sleeper = GuardedProcess(["unshare", "--net", "sleep", "infinity"], self._folder / "namespaces.log")
        self._processes.append(sleeper)
        ours, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{sleeper.pid}/ns/net")
        until(lambda: sleeper.poll() is not None or ours.readlink() != theirs.readlink(), "a network namespace")
        if sleeper.poll() is not None:
            raise UnavailableError("network namespaces cannot be made here")
        return NamespaceHost(address, sleeper.pid)


def check_available() -> None:
    """UnavailableError, with what to do, where there can be no namespaces."""
    if os.geteuid() != 0:
        raise UnavailableError("network namespaces need root")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise UnavailableError(f"{', '.join(missing)} not found: run scripts/system-packages")


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
