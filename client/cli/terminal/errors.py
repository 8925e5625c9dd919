"""Errors of commands, with texts for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.client.errors.kafka_error import KafkaError

# What to try next, by Kafka's name of the error.
_NEXT_STEPS: Final = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`ottla topic list` shows the topics that exist.",
    "TOPIC_ALREADY_EXISTS": "`ottla topic describe` shows it; `ottla topic alter` changes its options.",
    "GROUP_ID_NOT_FOUND": "`ottla group list` shows the groups that exist.",
    "NON_EMPTY_GROUP": "Stop its members first; `ottla group members` shows them.",
    "UNKNOWN_MEMBER_ID": "The group has members, and they commit offsets. Stop them first.",
    "TRANSACTIONAL_ID_NOT_FOUND": "`ottla transaction list` shows the transactional ids that exist.",
    "INVALID_REPLICATION_FACTOR": "`ottla cluster brokers` shows how many brokers there are.",
    "RESOURCE_NOT_FOUND": "`ottla user list` shows the users that exist.",
    "SECURITY_DISABLED": "Brokers check no ACLs until `authorizer.class.name` is set on them.",
    "PRODUCER_FENCED": "Another program has the same transactional id; give each its own with --transactional-id.",
    "INVALID_CONFIG": "`ottla config list` shows the options and their values.",
}


class CommandError(Exception):
    """A command failed; the text says why and what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# Codes of brokers that have waited in vain themselves.
_UNANSWERED: Final = ("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION")
# The outcome of a change whose answer is missing. Brokers drop it if they have not begun, now that we are gone.
_OPEN: Final = (
    "It is not known whether the change was made, and it may still be made. Look at the cluster before you repeat it."
)


def explained(error: KafkaError, *, is_change: bool = False) -> str:
    """Return a client error as text, with the usual next step if there is one."""
    from ottla.client.errors import KafkaConnectionError, KafkaTimeoutError, LocalError, NoBrokersAvailable

    if isinstance(error, NoBrokersAvailable):
        return (
            f"No broker can be reached: {error.detail}.\n"
            "Is the cluster running (`ottla up` starts one here), and is this its address? "
            "Set the address with -b HOST:PORT or OTTLA_BOOTSTRAP_SERVERS."
        )
    step = "" if isinstance(error, LocalError) else _NEXT_STEPS.get(error.message, "")
    if is_change and (isinstance(error, KafkaConnectionError | KafkaTimeoutError) or error.message in _UNANSWERED):
        step = _OPEN
    return f"{error}\n{step}" if step else str(error)
