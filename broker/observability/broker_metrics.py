"""Metrics for Prometheus, under the names that Kafka's JMX exporter gives, so that existing dashboards work.

Nothing is counted here: the rooms count for themselves, and the collector reads them when somebody asks. Names of
counters end in `_total`. Times are in milliseconds with a label `quantile`, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, Sample
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from ottla.broker.common.timings import ApiTimings, RequestMetrics, Timing
from ottla.broker.network.network import Network
from ottla.broker.replication.partitions import Partitions
from ottla.broker.security.listener_security import ListenerSecurity
from ottla.broker.storage.validation import Flaw

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_PHASES: dict[str, Callable[[ApiTimings], Timing]] = {
    "totaltimems": lambda timings: timings.total,
    "requestqueuetimems": lambda timings: timings.queue,
    "localtimems": lambda timings: timings.local,
    "remotetimems": lambda timings: timings.remote,
    "responsesendtimems": lambda timings: timings.send,
}
# Kafka's names for the flaws of batches.
_FLAWS = {
    Flaw.MAGIC: "invalidmagicnumberrecords",
    Flaw.CRC: "invalidmessagecrcrecords",
    Flaw.OFFSET_OR_SEQUENCE: "invalidoffsetorsequencerecords",
    Flaw.NO_KEY: "nokeycompactedtopicrecords",
}


class BrokerCollector(Collector):
    """Reads the rooms of one broker."""

    def __init__(
        self,
        network: Network,
        partitions: Partitions,
        requests: RequestMetrics,
        shows_partitions: Callable[[], bool] = lambda: True,
    ) -> None:
        self._network = network
        self._partitions = partitions
        self._requests = requests
        self._shows_partitions = shows_partitions

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        yield from self._request_metrics()
        yield from self._network_metrics()
        yield from self._topic_metrics()
        yield from self._log_metrics()

    def _request_metrics(self) -> Iterable[Metric]:
        by_api = dict(self._requests.by_api)
        count = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests answered", labels=["request"])
        for api, timings in by_api.items():
            count.add_metric([api.label], timings.requests)
        yield count
        for name, phase in _PHASES.items():
            family = GaugeMetricFamily(
                f"kafka_network_requestmetrics_{name}", "Time in a phase of requests", labels=["request", "quantile"]
            )
            for api, timings in by_api.items():
                for quantile in QUANTILES:
                    family.add_metric(
                        [api.label, str(quantile)], phase(timings).quantile(quantile, timings.requests) * 1000
                    )
            yield family
        seconds = CounterMetricFamily(
            "ottla_request_seconds", "Time that requests spent in a phase", labels=["request", "phase"]
        )
        for api, timings in by_api.items():
            for phase_name in ("queue", "local", "remote", "send"):
                seconds.add_metric([api.label, phase_name], getattr(timings, phase_name).total_seconds)
        yield seconds

    def _network_metrics(self) -> Iterable[Metric]:
        network = self._network
        yield GaugeMetricFamily(
            "kafka_network_requestchannel_requestqueuesize", "Requests in the queue", len(network.queue)
        )
        waiting = sum(connection.blocked_since is not None for connection in network.connections())
        yield GaugeMetricFamily(
            "kafka_network_requestchannel_responsequeuesize", "Clients that read too slowly", waiting
        )
        connections = GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count", "Open connections", labels=["listener"]
        )
        for listener, count in network.counts.by_listener.items():
            connections.add_metric([listener], count)
        yield connections
        rejected = CounterMetricFamily("ottla_connections_rejected", "Connections refused because of a limit")
        rejected.add_metric([], network.counts.rejected)
        yield rejected
        refused = CounterMetricFamily("ottla_frames_rejected", "Frames with an invalid size")
        refused.add_metric([], network.counts.frames_refused)
        yield refused
        sent = CounterMetricFamily("ottla_bytes_sent", "Bytes sent to clients, by how they were sent", labels=["way"])
        sent.add_metric(["sendfile"], network.bytes_sendfile)
        sent.add_metric(["copy"], network.bytes_copied)
        yield sent
        yield from _authentications(network.security)
        for name, purgatory in (
            ("Fetch", self._partitions.waits.fetches),
            ("Produce", self._partitions.waits.produces),
            ("DeleteRecords", self._partitions.waits.deletions),
        ):
            size = GaugeMetricFamily(
                "kafka_server_delayedoperationpurgatory_purgatorysize",
                "Operations that are waiting",
                labels=["delayedOperation"],
            )
            size.add_metric([name], len(purgatory))
            yield size

    def _topic_metrics(self) -> Iterable[Metric]:
        partitions = list(self._partitions)
        for name, help_text, attribute in (
            ("messagesin", "Records appended", "records_in"),
            ("bytesin", "Bytes appended", "bytes_in"),
            ("bytesout", "Bytes read by consumers", "bytes_out"),
            ("replicationbytesin", "Bytes copied from leaders", "replicated_bytes_in"),
            ("replicationbytesout", "Bytes read by followers", "replicated_bytes_out"),
            ("totalproducerequests", "Appends", "appends"),
            ("totalfetchrequests", "Reads", "reads"),
        ):
            by_topic: Counter[str] = Counter()
            for partition in partitions:
                by_topic[partition.partition.topic] += getattr(partition, attribute)
            yield _by_topic(name, help_text, by_topic)
        # Rows exist from the start: a rate cannot show the step from no row to the first one.
        none = {partition.partition.topic: 0 for partition in partitions}
        yield _by_topic("failedproducerequests", "Appends refused", none | self._partitions.failed_appends)
        yield _by_topic("failedfetchrequests", "Reads refused", none | self._partitions.failed_reads)
        for flaw, name in _FLAWS.items():
            flawed = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", f"Batches refused: {flaw.value}")
            flawed.add_metric([], self._partitions.flawed_batches[flaw])
            yield flawed

    def _log_metrics(self) -> Iterable[Metric]:
        families = {
            name: GaugeMetricFamily(f"kafka_log_log_{name}", help_text, labels=["topic", "partition"])
            for name, help_text in (
                ("size", "Bytes of a log"),
                ("logstartoffset", "First offset of a log"),
                ("logendoffset", "Next offset of a log"),
                ("numlogsegments", "Segments of a log"),
            )
        }
        for log in self._partitions.logs if self._shows_partitions() else ():
            labels = [log.partition.topic, str(log.partition.partition)]
            families["size"].add_metric(labels, log.size)
            families["logstartoffset"].add_metric(labels, log.log_start_offset)
            families["logendoffset"].add_metric(labels, log.log_end_offset)
            families["numlogsegments"].add_metric(labels, len(log.segments))
        yield from families.values()
        for name, help_text, attribute in (
            ("free", "Free bytes on the disk of a log directory", "free_bytes"),
            ("total", "Size in bytes of the disk of a log directory", "total_bytes"),
            ("watermark", "Free bytes below which a log directory refuses records of producers", "watermark_bytes"),
        ):
            space = GaugeMetricFamily(f"ottla_log_directory_{name}_bytes", help_text, labels=["directory"])
            for log_dir in self._partitions.logs.dirs:
                space.add_metric([str(log_dir.path)], getattr(log_dir, attribute))
            yield space
        level = GaugeMetricFamily(
            "ottla_log_directory_space_level",
            "What a log directory refuses for want of space: 0 nothing, 1 producers, 2 also copies, 3 every append",
            labels=["directory"],
        )
        for log_dir in self._partitions.logs.dirs:
            level.add_metric([str(log_dir.path)], log_dir.space_level)
        yield level
        offline = sum(not log_dir.is_online for log_dir in self._partitions.logs.dirs)
        yield GaugeMetricFamily("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that failed", offline)


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with the broker's metrics and those of its process."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def _by_topic(name: str, help_text: str, values: Mapping[str, int]) -> CounterMetricFamily:
    """Return one row for each topic, and one without a label for all topics, as Kafka does."""
    family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", help_text, labels=["topic"])
    for topic, value in dict(values).items():
        family.add_metric([topic], value)
    family.samples.append(Sample(f"kafka_server_brokertopicmetrics_{name}_total", {}, sum(values.values())))
    return family


def _authentications(security: Mapping[str, ListenerSecurity]) -> Iterable[Metric]:
    succeeded, failed, handshakes = (
        CounterMetricFamily(name, documentation, labels=["listener"])
        for name, documentation in (
            ("kafka_server_socket_server_metrics_successful_authentication", "Successful authentications"),
            ("kafka_server_socket_server_metrics_failed_authentication", "Failed authentications"),
            ("ottla_tls_handshakes_failed", "TLS handshakes that failed"),
        )
    )
    for listener, (tls, sasl) in security.items():
        if sasl is not None:
            succeeded.add_metric([listener], sasl.successes)
            failed.add_metric([listener], sasl.failures)
        if tls is not None:
            handshakes.add_metric([listener], tls.failures)
    return succeeded, failed, handshakes
