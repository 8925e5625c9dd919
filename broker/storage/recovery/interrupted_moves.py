"""Moves to another log directory that a crash interrupted: a start decides which copy of a partition counts.

`log_moves.py` lists the steps of a move, and what a start finds after a crash at each of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from ottla.broker.storage.checkpoint import sync_directory
from ottla.broker.storage.directory_files import (
    DirectoryKind,
    MoveState,
    directory_name,
    read_move_state,
    remove_move_state,
)
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.logs import Logs
from ottla.protocol.identifiers import TopicPartition

logger = structlog.get_logger(__name__)


class FoundDirectory(NamedTuple):
    """A partition directory that was found at the start."""

    partition: TopicPartition
    directory: Path
    is_future: bool = False


def settle_moves(logs: Logs, found: Mapping[LogDir, list[FoundDirectory]]) -> None:
    """Decide which copy of each moved partition counts, so that it has one current log if possible.

    Changes `found` to what should be opened. Two directories without any note are left to the caller.
    """
    if len(logs.dirs) > 1:
        _settle_notes(logs, found)
    _drop_surplus_futures(logs, found)


def _settle_notes(logs: Logs, found: Mapping[LogDir, list[FoundDirectory]]) -> None:
    are_all_online = len(logs.online_dirs) == len(logs.dirs)
    currents: dict[TopicPartition, list[LogDir]] = {}
    for log_dir, there in found.items():
        for each in there:
            if not each.is_future:
                currents.setdefault(each.partition, []).append(log_dir)
    for log_dir, there in found.items():
        for each in [each for each in there if not each.is_future]:
            try:
                _settle(logs, found, log_dir, each, currents[each.partition], are_all_online=are_all_online)
            except OSError as error:
                log_dir.take_offline(str(error))


def _settle(
    logs: Logs,
    found: Mapping[LogDir, list[FoundDirectory]],
    log_dir: LogDir,
    each: FoundDirectory,
    log_dirs: list[LogDir],
    *,
    are_all_online: bool,
) -> None:
    state = read_move_state(each.directory)
    if state is None:
        return
    others = [other for other in log_dirs if other is not log_dir]
    if state is MoveState.UNFINISHED and (others or not are_all_online):
        # First: it is not the log, whether it can be renamed or not.
        found[log_dir].remove(each)
        log_dirs.remove(log_dir)
        path = log_dir.path / directory_name(each.partition, DirectoryKind.FUTURE)
        os.rename(each.directory, path)
        sync_directory(log_dir.path)
        found[log_dir].append(FoundDirectory(each.partition, path, is_future=True))
        logger.warning("move_resumed", partition=str(each.partition), target=str(log_dir.path))
        return
    if state is MoveState.FINISHED:
        for other in others:
            logger.warning("moved_copy_dropped", partition=str(each.partition), directory=str(other.path))
            _discard(logs, found, other, _of(found[other], each.partition))
            log_dirs.remove(other)
    if are_all_online:
        remove_move_state(each.directory)


def _of(there: list[FoundDirectory], partition: TopicPartition) -> FoundDirectory:
    return next(each for each in there if each.partition == partition and not each.is_future)


def _drop_surplus_futures(logs: Logs, found: Mapping[LogDir, list[FoundDirectory]]) -> None:
    """Keep one future log of each partition, in another directory than the current log."""
    seen: set[TopicPartition] = set()
    for log_dir, there in found.items():
        here = {each.partition for each in there if not each.is_future}
        for each in [each for each in there if each.is_future]:
            if each.partition not in seen and each.partition not in here:
                seen.add(each.partition)
                continue
            _discard(logs, found, log_dir, each)


def _discard(logs: Logs, found: Mapping[LogDir, list[FoundDirectory]], log_dir: LogDir, each: FoundDirectory) -> None:
    """Drop a directory instead of opening it; if it cannot be renamed, the log directory goes offline."""
    found[log_dir].remove(each)
    try:
        drop_directory(logs, log_dir, each)
    except OSError as error:
        log_dir.take_offline(str(error))


def drop_directory(logs: Logs, log_dir: LogDir, each: FoundDirectory) -> None:
    """Rename a directory that is not opened, durably, so that it is removed soon."""
    path = log_dir.path / directory_name(each.partition, DirectoryKind.DELETE)
    os.rename(each.directory, path)
    sync_directory(log_dir.path)
    logs.doom(path, log_dir, delay_ms=0)
