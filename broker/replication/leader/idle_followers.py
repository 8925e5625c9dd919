"""Followers that have everything, of a partition where nothing happens: most partitions of a broker, most of the time.

Such a follower still fetches, twice a second, and its leader must know: what is appended next does not find it behind
for as long as nothing was appended. That is all there is to note, and there is nothing to answer.
"""

from __future__ import annotations

from ottla.broker.replication.partition import FollowerFetch, Partition


def note_idle(partition: Partition, fetch: FollowerFetch, now_ms: int) -> bool:
    """Note that a follower in sync fetches at the end of a log that is committed up to there.

    Return False, with nothing noted, where it is anything else: then the fetch has to be read. The caller knows that
    the follower's log was found to be like ours, up to the same offset and in the same leader epoch.
    """
    log = partition.log
    with partition.lock:
        role = partition.role
        follower = partition.follower_positions().get(fetch.replica_id)
        if (
            follower is None
            or role.leader_epoch != fetch.current_leader_epoch
            or fetch.replica_id not in role.isr
            or not follower.log_end_offset == fetch.offset == log.high_watermark == log.log_end_offset
            or follower.log_start_offset != fetch.log_start_offset
            or follower.broker_epoch != fetch.broker_epoch
        ):
            return False
        if now_ms > follower.last_fetch_ms:
            follower.last_fetch_ms = now_ms
        if now_ms > follower.last_caught_up_ms:
            follower.last_caught_up_ms = now_ms
        return True
