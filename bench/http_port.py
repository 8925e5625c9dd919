"""What a poll of the console costs a broker: over a new connection each time, and over one that stays open, by turns.

    python -m bench.http_port [--rounds N] [--polls N]

A poll is what an open page has the console ask every two seconds, `/inside/v1/broker`. Prints the processor time of the
broker for each poll, and how long a poll takes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import aiohttp
from bench.support.usage import cpu_seconds
from tests.kit.broker_process import BrokerProcess
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

_PAGE = "/inside/v1/broker"


async def poll(broker: BrokerProcess, polls: int, *, stays: bool) -> tuple[float, float]:
    """Poll one after the other; return the milliseconds of processor time and of waiting for each poll."""
    connector = aiohttp.TCPConnector() if stays else aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as http:
        before, begun = cpu_seconds([broker.pid]), time.perf_counter()
        for _ in range(polls):
            async with http.get(broker.http + _PAGE) as answer:
                answer.raise_for_status()
                await answer.read()
        taken = time.perf_counter() - begun
    return (cpu_seconds([broker.pid]) - before) / polls * 1000, taken / polls * 1000


def main() -> None:
    """Measure by turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    parser.add_argument("--polls", type=int, default=1000, help="how many polls a round has")
    options = parser.parse_args()
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        server_folder = Path(folder, "zookeeper")
        server_folder.mkdir()
        with (
            ZooKeeperServer(server_folder) as server,
            BrokerProcess(Path(folder, "broker"), ZooKeeper(server).connect) as broker,
        ):
            for number in range(options.rounds):
                for stays in (False, True) if number % 2 == 0 else (True, False):
                    found[stays].append(asyncio.run(poll(broker, options.polls, stays=stays)))
    print(f"{'connection':12}  processor time of the broker, ms  waiting, ms (medians of {options.rounds}, per poll)")
    for stays, values in found.items():
        processor, waiting = (statistics.median(each) for each in zip(*values, strict=True))
        print(f"{'kept' if stays else 'a new one':12}  {processor:33.2f}  {waiting:11.2f}")


if __name__ == "__main__":
    main()
