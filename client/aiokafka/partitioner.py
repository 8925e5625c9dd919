"""aiokafka's partitioner: by the hash of the key, and by chance without a key."""

from __future__ import annotations

import random
from typing import Any

from ottla.client.producer.partitioner import murmur2

__all__ = ["DefaultPartitioner", "murmur2"]


class DefaultPartitioner:
    """Returns the partition of a key, or any that has a leader."""

    @classmethod
    def __call__(cls, key: Any, all_partitions: Any, available: Any) -> Any:
        if key is None:
            # Nobody gains by guessing it.
            return random.choice(available or all_partitions)  # noqa: S311
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]
