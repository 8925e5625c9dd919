"""What TLS and logins cost: records produced and consumed through the four kinds of listeners, ours and Apache Kafka's.

    python -m bench.security [--rounds N] [--seconds S] [--only TEXT] [--json FILE] [--alone]

One broker of each has all four listeners, and all are loaded by turns: librdkafka produces for S seconds, then consumes
what it has produced. Logins are SCRAM-SHA-512, and happen once for each connection. TLS is the newest version that both
sides have, with a certificate on an elliptic curve. What ACLs cost is measured by `python -m bench.access`.

Before that, each is loaded until two rounds agree within 10 % both ways; those marked ~ never did.

The goal: as much through TLS as Kafka, of both sizes and both ways.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.support.contender import ApacheKafka, Contender, Ottla
from bench.support.report import machine
from bench.support.rows import ADMIN_SECONDS_MAX, Values, counted, throughput, topic_for
from bench.support.run import becomes_steady
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.broker.security.certificates import Certificates
from tests.kit.apache_kafka import UnavailableError

PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
SIZES = {"100 B": 100, "1 KB": 1024}
ROUNDS = 3
SECONDS = 5.0
GOAL = 1.0
MECHANISM = "SCRAM-SHA-512"
USER, PASSWORD = "bench", "not-a-secret"
ITERATIONS = 4096


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of a broker, as a load sees it."""

    contender: Contender
    protocol: str
    client_settings: dict[str, str]

    @property
    def name(self) -> str:
        """Whose it is, and what it speaks."""
        return f"{self.contender.name} {self.protocol}"

    @property
    def bootstrap(self) -> str:
        """Where it is."""
        return ",".join(self.contender.listeners[self.protocol])

    @property
    def broker_count(self) -> int:
        """How many brokers there are."""
        return self.contender.broker_count

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return self.contender.pids


def broker_options(certificates: Certificates) -> dict[str, str]:
    """What a broker needs for all four."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    secure = [protocol.lower() for protocol in PROTOCOLS if protocol.startswith("SASL")]
    return {
        **certificates.options(),
        "sasl.enabled.mechanisms": MECHANISM,
        **{f"listener.name.{listener}.{MECHANISM.lower()}.sasl.jaas.config": login for listener in secure},
    }


def client_settings(protocol: str, certificates: Certificates) -> dict[str, str]:
    """What a client needs for one of them."""
    settings = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = str(certificates.truststore)
    if protocol.startswith("SASL"):
        settings |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
    return settings


def create_user(contender: Contender) -> None:
    """Have somebody who can log in."""
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    admin = AdminClient({"bootstrap.servers": contender.bootstrap})
    wanted = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    admin.alter_user_scram_credentials([wanted])[USER].result(ADMIN_SECONDS_MAX)


def measured(listener: Listener, size: int, seconds: float) -> dict[str, Values]:
    """Produce for so long, then consume what was produced."""
    with topic_for(listener) as topic:
        count, produced = counted(listener, "produce", topic, size, "--seconds", str(seconds))
        consumed = throughput(listener, "consume", topic, size, "--count", str(count))
    return {"produce": produced, "consume": consumed}


def warm_up_values(listener: Listener, size: int, seconds: float) -> Values:
    """Return what tells whether a broker is warm: how fast it is both ways."""
    return {f"MB/s {way}": values["MB/s"] for way, values in measured(listener, size, seconds).items()}


class Results:
    """By row, then by listener, the values of all rounds."""

    def __init__(self) -> None:
        self.rounds: dict[str, dict[str, list[Values]]] = {}
        # Sizes and listeners that did not become steady before they were measured.
        self._unsteady: set[tuple[str, str]] = set()

    def note_unsteady(self, size: str, listener: str) -> None:
        """Note that a listener may get faster still with records of this size."""
        self._unsteady.add((size, listener))

    def add(self, row: str, listener: str, values: Values) -> None:
        """Note one measurement, and say it."""
        self.rounds.setdefault(row, {}).setdefault(listener, []).append(values)
        said = ", ".join(f"{values[metric]:,.3g} {metric}" for metric in ("MB/s", "CPU s/GB"))
        print(f"{listener:22} {row}: {said}", flush=True)

    def median(self, row: str, listener: str, metric: str) -> float:
        """Return the median over the rounds."""
        return statistics.median(values[metric] for values in self.rounds[row][listener])

    def table(self) -> str:
        """Return the table for people: each listener beside the open one of the same broker, and beside Kafka's."""
        lines: list[tuple[str, ...]] = [
            ("", "listener", "MB/s", "of open", "of Kafka's", "CPU s/GB", "of open", "of Kafka's", "")
        ]
        for row, by_listener in self.rounds.items():
            for listener in by_listener:
                mark = " ~" * any(row.endswith(size) and who == listener for size, who in self._unsteady)
                lines.append((row, listener + mark, *self._cells(row, listener)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    def _cells(self, row: str, listener: str) -> tuple[str, ...]:
        whose, _, protocol = listener.partition(" ")
        cells: list[str] = []
        verdict = ""
        for metric in ("MB/s", "CPU s/GB"):
            value = self.median(row, listener, metric)
            cells.append(f"{value:.3g}")
            for other in (f"{whose} PLAINTEXT", f"{ApacheKafka.name} {protocol}"):
                is_there = other != listener and other in self.rounds[row]
                ratio = value / self.median(row, other, metric) if is_there else None
                cells.append("" if ratio is None else f"{ratio:.2f}")
                if ratio is not None and (metric, protocol) == ("MB/s", "SSL") and other.startswith(ApacheKafka.name):
                    verdict = "met" if ratio >= GOAL else "SHORT"
        return (*cells, verdict if whose == Ottla.name else "")


def main() -> None:
    """Read the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each row is measured")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each producer goes on")
    parser.add_argument("--only", metavar="TEXT", default="", help="only listeners with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    results = Results()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ExitStack() as cleanup:
        certificates = Certificates(Path(folder))
        listeners: list[Listener] = []
        for kind in [Ottla] if options.alone else [Ottla, ApacheKafka]:
            contender = kind(Path(folder) / kind.name, properties=broker_options(certificates), protocols=PROTOCOLS)
            cleanup.callback(contender.stop)
            contender.start()
            create_user(contender)
            listeners += [
                Listener(contender, protocol, client_settings(protocol, certificates)) for protocol in PROTOCOLS
            ]
        chosen = [listener for listener in listeners if options.only in listener.name]
        for listener in chosen:
            for label, size in SIZES.items():
                warm = partial(warm_up_values, listener, size, options.seconds)
                if not becomes_steady(f"{listener.name:22} {label}", warm, compared=2):
                    results.note_unsteady(label, listener.name)
        for number in range(options.rounds):
            for label, size in SIZES.items():
                for listener in chosen if number % 2 == 0 else reversed(chosen):
                    for kind_of_load, values in measured(listener, size, options.seconds).items():
                        results.add(f"{kind_of_load} {label}", listener.name, values)
    print(f"\nload at the end: {' '.join(f'{load:.1f}' for load in os.getloadavg())}\n{results.table()}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": results.rounds}, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except UnavailableError as error:
        sys.exit(str(error))
