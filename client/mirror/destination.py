"""What a mirror needs of the cluster that it copies to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.client.mirror.partition_copy import Fetched, PartitionCopy


class Destination(Protocol):
    """Appends what was fetched, in order, each batch once."""

    # Whether batches are the same bytes as in the source, with open and aborted transactions; or only what was
    # committed, in batches of our own producer.
    copies_bytes: bool

    async def start(self) -> None:
        """Prepare to append; MirrorError if that cannot be done."""
        ...

    async def close(self) -> None:
        """Give back what `start` has taken."""
        ...

    async def prepare(self, copies: Sequence[PartitionCopy]) -> None:
        """Learn what else is needed to append to partitions, once it is known where their logs end."""
        ...

    async def append(self, fetched: Sequence[Fetched]) -> None:
        """Append batches, and follow the log starts of the source.

        Each copy learns the new end of its log; if something failed, it will look up its position again. MirrorError:
        nothing can be copied any more.
        """
        ...
