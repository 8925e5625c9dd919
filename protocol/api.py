"""The one list of APIs.

The name of a member gives its messages: LIST_OFFSETS has `ListOffsetsRequest` and `ListOffsetsResponse` in
`messages/list_offsets.py`, which is imported on first use. The version ranges are in the message declarations.
"""

from __future__ import annotations

import importlib
from enum import IntEnum
from functools import cached_property
from typing import Final

from ottla.protocol.message import Message, Versions

# The keys of our own APIs begin here: far from those of Apache Kafka, and from those that vendors use from 10000 on.
FIRST_OWN_KEY: Final = 22_000


class Api(IntEnum):
    """An API and its key."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    # Ours alone; see FIRST_OWN_KEY.
    MIRROR_APPEND = 22_000
    UNDELETE_TOPICS = 22_001

    @property
    def is_own(self) -> bool:
        """Whether Kafka does not have the API."""
        return self >= FIRST_OWN_KEY

    @cached_property
    def label(self) -> str:
        """Kafka's name of the API, such as `ListOffsets`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @cached_property
    def request(self) -> type[Message]:
        """The class of its requests."""
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        """The class of its responses."""
        return self._message("Response")

    @property
    def versions(self) -> Versions:
        """The versions that we can read and write."""
        return self.request.versions

    def request_header_version(self, version: int) -> int:
        """Return the header version for a request of this version."""
        if self is Api.CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if version in self.request.flexible else 1

    def response_header_version(self, version: int) -> int:
        """Return the header version for the response to a request of this version."""
        # A client cannot know in which version the broker answers ApiVersions, so that header never changes.
        first, last = self.response.flexible
        return int(first <= version <= last and self is not Api.API_VERSIONS)

    def _message(self, kind: str) -> type[Message]:
        module = importlib.import_module(f"ottla.protocol.messages.{self.name.lower()}")
        cls: type[Message] = getattr(module, self.label + kind)
        return cls
