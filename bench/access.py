"""What ACLs cost a Produce request: the handler with an authorizer and without, by turns, in processor time.

    python -m bench.access [--rounds N] [--acls N]

The worst case: one record of 100 bytes in each request, with `--acls` other ACLs around the one that counts. The
network, which costs three times as much, is left out; so is waiting, and what else runs on the machine hardly counts.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import structlog
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.kit.services import for_handler

from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.request import Request
from ottla.broker.security.acls.acl import AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_snapshot import AclSnapshot
from ottla.broker.security.acls.authorizer import AclAuthorizer, Authorizer
from ottla.broker.security.session import ANONYMOUS, Session
from ottla.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "t"
VERSION = 9
# Few enough that some rounds are not disturbed.
REQUESTS = 200
GOAL = 0.03


def acls(others: int) -> AclSnapshot:
    """The ACL that lets the client in, among others of both kinds."""
    entry = AclEntry(ANONYMOUS, "*", AclOperation.WRITE, AclPermissionType.ALLOW)
    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    around = {ResourcePattern(ResourceType.TOPIC, f"u{number}", kinds[number % 2]) for number in range(others)}
    return AclSnapshot(dict.fromkeys([ResourcePattern(ResourceType.TOPIC, TOPIC), *around], frozenset({entry})))


def producing(broker: Broker, authorizer: Authorizer) -> Callable[[], float]:
    """Return what produces with an authorizer and tells the processor time of a request, in microseconds."""
    rows = [PartitionProduceData(index=0, records=batch(b"v" * 100))]
    data = [TopicProduceData(name=TOPIC, partition_data=rows)]
    sent = encode(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), VERSION)
    session = Session("PLAINTEXT", "127.0.0.1")
    handle, services = HANDLERS[Api.PRODUCE].handle, for_handler(broker.services, Api.PRODUCE)

    def measure() -> float:
        broker.services.security.authorizer = authorizer
        begun = time.process_time()
        for _ in range(REQUESTS):
            body = decode(Api.PRODUCE.request, VERSION, sent)
            handle(Request(Api.PRODUCE, VERSION, body, "bench", session, services))
        return (time.process_time() - begun) / REQUESTS * 1e6

    return measure


def main() -> None:
    """Read the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="how often each is measured")
    parser.add_argument("--acls", type=int, default=10_000, help="how many other ACLs there are")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    by_acls = AclAuthorizer([], allow_if_no_acl=False, snapshot=acls(options.acls))
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, running_broker(Path(folder), {}) as broker:
        broker.lead(TOPIC)
        contenders = [producing(broker, Authorizer()), producing(broker, by_acls)]
        for measure in contenders:
            measure()
        rounds = [[measure() for measure in contenders] for _ in range(options.rounds)]
    # Whatever else runs only adds: the tenth part of the rounds that took least says what the code itself takes.
    without, with_acls = (statistics.quantiles(times, n=10)[0] for times in zip(*rounds, strict=True))
    cost = with_acls / without - 1
    print(f"open {without:.1f} us, with ACLs {with_acls:.1f} us a request: {cost:+.1%} (goal: below {GOAL:.0%})")


if __name__ == "__main__":
    main()
