"""Where the processes of a test run: a host has an address, and commands and calls that see the network as it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from ottla.client.local_cluster.ports import free_port
from ottla.client.local_cluster.record import HOST

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Host:
    """This machine, by its loopback interface."""

    address: str = HOST

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command there, in the same process."""
        return list(command)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function there: sockets that it makes, also in threads that it starts, are of that host."""
        return function()

    def free_port(self, taken: AbstractSet[int] = frozenset()) -> int:
        """Return a port that nobody uses there."""
        return self.call(lambda: free_port(self.address, taken))


LOOPBACK = Host()
