"""Errors of the sources, in words for the author of the job."""

from __future__ import annotations


class SourceOptionError(ValueError):
    """An option is missing, wrong, or contradicts another; the message says what to change."""


class DataLossError(RuntimeError):
    """Records that the query should read are gone."""

    def __init__(self, lost: str) -> None:
        super().__init__(
            f"{lost}. Records may be lost: they were deleted by retention or by hand, or the topic was made anew, "
            'before they were read. To go on with what is there, set the option failOnDataLoss to "false".'
        )


class RepeatedBatchError(RuntimeError):
    """A batch that is written already has other rows when it is repeated."""

    def __init__(self, what: str, written: int, found: int) -> None:
        super().__init__(
            f"{what} was written with {written} rows, and has {found} rows now. Rows that were not written then would "
            "be lost: a batch must have the same rows whenever it is repeated, and another batch another batchId. To "
            'keep what is written and go on, set the option failOnDataLoss to "false".'
        )


class UnseenRecordError(RuntimeError):
    """Records were written to a shard that its task had not seen; the next attempt reads them."""


class CorruptLogError(RuntimeError):
    """A file of a log is damaged; the message names the file and the position."""
