"""The dashboards in config/grafana/dashboards: what they show. `make docs` writes them; a test fails when they are old.

`python -m scripts.grafana_dashboards`. Metrics are explained in docs/METRICS.md. Sums over brokers are right for all of
them; rows of topics have a label that the sum of all topics lacks, so `topic!=""` is each topic once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from scripts.grafana_panels import Dashboard, Kind, Panel, Variable, number

FOLDER: Final = Path(__file__).parent.parent / "config" / "grafana" / "dashboards"


def rate(metric: str, *by: str, labels: str = "") -> str:
    """How fast a counter grows, summed up by labels."""
    summed = f"sum by ({', '.join(by)}) " if by else "sum"
    selector = f"{{{labels}}}" if labels else ""
    return f"{summed}(rate({metric}{selector}[$__rate_interval]))"


_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_TRAFFIC = "kafka_server_brokertopicmetrics"
_REQUESTS = "kafka_network_requestmetrics"
_ALL = 'topic=""'
_TOPIC = 'topic=~"$topic",topic!=""'

CLUSTER = Dashboard(
    "cluster",
    "Cluster",
    {
        "State": [
            number("Brokers", "sum(kafka_brokers)", limits=(3, 2)),
            number("Controllers", f"sum({_CONTROLLER}_activecontrollercount)", limits=(1, 0.5)),
            number("Offline partitions", f"sum({_CONTROLLER}_offlinepartitionscount)", limits=(1, 1)),
            number("Under min ISR", f"sum({_REPLICAS}_underminisrpartitioncount)", limits=(1, 1)),
            number("Under-replicated", f"sum({_REPLICAS}_underreplicatedpartitions)", limits=(1, 50)),
            number("At min ISR", f"sum({_REPLICAS}_atminisrpartitioncount)"),
            number("Topics", f"sum({_CONTROLLER}_globaltopiccount)"),
            number("Partitions", f"sum({_CONTROLLER}_globalpartitioncount)"),
        ],
        "Traffic": [
            Panel("Bytes in", {"{{instance}}": rate(f"{_TRAFFIC}_bytesin_total", "instance", labels=_ALL)}, "Bps"),
            Panel("Bytes out", {"{{instance}}": rate(f"{_TRAFFIC}_bytesout_total", "instance", labels=_ALL)}, "Bps"),
            Panel("Records in", {"{{instance}}": rate(f"{_TRAFFIC}_messagesin_total", "instance", labels=_ALL)}, "cps"),
        ],
        "Replication": [
            Panel(
                "Replicated bytes",
                {
                    "in {{instance}}": rate(f"{_TRAFFIC}_replicationbytesin_total", "instance", labels=_ALL),
                    "out {{instance}}": rate(f"{_TRAFFIC}_replicationbytesout_total", "instance", labels=_ALL),
                },
                "Bps",
            ),
            Panel(
                "Follower furthest behind",
                {"{{instance}}": "max by (instance) (kafka_server_replicafetchermanager_maxlag)"},
                about="Records that the follower which lags most lacks.",
            ),
            Panel(
                "Changes of ISRs",
                {
                    "shrinks {{instance}}": rate(f"{_REPLICAS}_isrshrinks_total", "instance"),
                    "expands {{instance}}": rate(f"{_REPLICAS}_isrexpands_total", "instance"),
                },
                "cps",
            ),
            Panel("Leaders", {"{{instance}}": f"{_REPLICAS}_leadercount"}, about="Partitions that each broker leads."),
            Panel(
                "Elections",
                {
                    "rounds": rate("ottla_controller_elections_total"),
                    "unclean": rate("kafka_controller_controllerstats_uncleanleaderelections_total"),
                },
                "cps",
                about="An unclean election loses records.",
            ),
            Panel(
                "Trouble with ZooKeeper",
                {
                    "disconnects {{instance}}": rate(
                        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total", "instance"
                    ),
                    "expires {{instance}}": rate(
                        "kafka_server_sessionexpirelistener_zookeeperexpires_total", "instance"
                    ),
                },
                "cps",
            ),
        ],
        "Machines": [
            Panel("CPU", {"{{instance}}": rate("process_cpu_seconds_total", "instance")}, "percentunit"),
            Panel("Memory", {"{{instance}}": "process_resident_memory_bytes"}, "bytes"),
            Panel("Open files", {"{{instance}}": "process_open_fds"}),
            Panel(
                "Free space on disks",
                {"{{instance}} {{directory}}": "ottla_log_directory_free_bytes / ottla_log_directory_total_bytes"},
                "percentunit",
            ),
            Panel(
                "Disk",
                {
                    "read {{instance}}": rate("kafka_server_kafkaserver_linux_disk_read_bytes", "instance"),
                    "write {{instance}}": rate("kafka_server_kafkaserver_linux_disk_write_bytes", "instance"),
                },
                "Bps",
            ),
            Panel("Logs", {"{{instance}}": "sum by (instance) (kafka_log_log_size)"}, "bytes"),
        ],
    },
)

TOPICS = Dashboard(
    "topics",
    "Topics",
    {
        "Traffic": [
            Panel("Records in", {"{{topic}}": rate(f"{_TRAFFIC}_messagesin_total", "topic", labels=_TOPIC)}, "cps"),
            Panel("Bytes in", {"{{topic}}": rate(f"{_TRAFFIC}_bytesin_total", "topic", labels=_TOPIC)}, "Bps"),
            Panel("Bytes out", {"{{topic}}": rate(f"{_TRAFFIC}_bytesout_total", "topic", labels=_TOPIC)}, "Bps"),
            Panel(
                "Appends", {"{{topic}}": rate(f"{_TRAFFIC}_totalproducerequests_total", "topic", labels=_TOPIC)}, "cps"
            ),
            Panel("Reads", {"{{topic}}": rate(f"{_TRAFFIC}_totalfetchrequests_total", "topic", labels=_TOPIC)}, "cps"),
            Panel(
                "Refused",
                {
                    "appends {{topic}}": rate(f"{_TRAFFIC}_failedproducerequests_total", "topic", labels=_TOPIC),
                    "reads {{topic}}": rate(f"{_TRAFFIC}_failedfetchrequests_total", "topic", labels=_TOPIC),
                },
                "cps",
            ),
        ],
        "What is stored": [
            Panel(
                "Records",
                {
                    "{{topic}}": 'sum by (topic) (kafka_topic_partition_current_offset{topic=~"$topic"}'
                    ' - kafka_topic_partition_oldest_offset{topic=~"$topic"})'
                },
                about="Offsets from the first to the next; compaction leaves holes in them.",
            ),
            Panel(
                "Bytes, with all replicas",
                {"{{topic}}": 'sum by (topic) (kafka_log_log_size{topic=~"$topic"})'},
                "bytes",
            ),
            Panel("Segments", {"{{topic}}": 'sum by (topic) (kafka_log_log_numlogsegments{topic=~"$topic"})'}),
        ],
        "Partitions": [
            Panel("Partitions", {"{{topic}}": 'sum by (topic) (kafka_topic_partitions{topic=~"$topic"})'}),
            Panel(
                "Without all replicas",
                {
                    "under-replicated {{topic}}": "sum by (topic) "
                    '(kafka_topic_partition_under_replicated_partition{topic=~"$topic"}) > 0',
                    "under min ISR {{topic}}": "sum by (topic) "
                    '(kafka_cluster_partition_underminisr{topic=~"$topic"}) > 0',
                },
            ),
            Panel(
                "Not led by their first replica",
                {"{{topic}}": 'count by (topic) (kafka_topic_partition_leader_is_preferred{topic=~"$topic"} == 0)'},
            ),
            Panel(
                "Offsets",
                {"": 'sum by (topic, partition) (kafka_topic_partition_current_offset{topic=~"$topic"})'},
                kind=Kind.TABLE,
                width=12,
            ),
            Panel(
                "Replicas in sync",
                {"": 'sum by (topic, partition) (kafka_topic_partition_in_sync_replica{topic=~"$topic"})'},
                kind=Kind.TABLE,
                width=12,
            ),
        ],
    },
    [Variable("topic", "kafka_topic_partition_current_offset")],
)

_GROUP = 'consumergroup=~"$consumergroup"'
_LAG = f"sum by (consumergroup, topic) (kafka_consumergroup_lag{{{_GROUP}}})"
GROUPS = Dashboard(
    "groups",
    "Groups and lag",
    {
        "State": [
            number("Groups", "sum(kafka_coordinator_group_groupmetadatamanager_numgroups)"),
            number("Members", f"sum(kafka_consumergroup_members{{{_GROUP}}})"),
            number("Records behind", f"sum(kafka_consumergroup_lag{{{_GROUP}}})", unit="short"),
            number("Offsets kept", "sum(kafka_coordinator_group_groupmetadatamanager_numoffsets)", unit="short"),
        ],
        "Lag": [
            Panel(
                "Records behind",
                {"{{consumergroup}} / {{topic}}": _LAG},
                width=12,
            ),
            Panel(
                "Time behind",
                {
                    "{{consumergroup}} / {{topic}}": "max by (consumergroup, topic)"
                    f" (ottla_consumergroup_lag_seconds{{{_GROUP}}})"
                },
                "s",
                width=12,
                about="Age of the first record that a group has not committed, in the partition furthest behind.",
            ),
            Panel(
                "Not moving",
                {
                    "{{consumergroup}} / {{topic}}": "max by (consumergroup, topic)"
                    f" (ottla_consumergroup_stalled_seconds{{{_GROUP}}})"
                },
                "s",
                width=8,
                about="For how long a group has had a record to read and has not moved. A slow group moves.",
            ),
            Panel(
                "Records read a second",
                {
                    "{{consumergroup}} / {{topic}}": rate(
                        "kafka_consumergroup_current_offset", "consumergroup", "topic", labels=_GROUP
                    )
                },
                "cps",
                width=8,
                about="As committed.",
            ),
            Panel(
                "Members",
                {"{{consumergroup}}": f"sum by (consumergroup) (kafka_consumergroup_members{{{_GROUP}}})"},
                width=8,
            ),
            Panel(
                "Partitions furthest behind",
                {"": f"topk(20, sum by (consumergroup, topic, partition) (kafka_consumergroup_lag{{{_GROUP}}}))"},
                kind=Kind.TABLE,
                width=24,
            ),
        ],
    },
    [Variable("consumergroup", "kafka_consumergroup_current_offset")],
)

_REQUEST = 'request=~"$request"'
REQUESTS = Dashboard(
    "requests",
    "Requests: where the time goes",
    {
        "Where the time goes": [
            Panel(
                "Requests", {"{{request}}": rate(f"{_REQUESTS}_requests_total", "request", labels=_REQUEST)}, "reqps"
            ),
            Panel(
                "Mean time of a request by phase",
                {
                    "{{phase}}": f"{rate('ottla_request_seconds_total', 'phase', labels=_REQUEST)}"
                    f" / on () group_left () {rate(f'{_REQUESTS}_requests_total', labels=_REQUEST)}"
                },
                "s",
                is_stacked=True,
                about="queue: waiting for a worker. local: with a worker. remote: waiting for followers, or for records"
                " (a fetch that finds nothing new waits by design). send: being sent.",
            ),
            Panel(
                "Time that workers spend",
                {"{{request}}": rate("ottla_request_seconds_total", "request", labels=f'{_REQUEST},phase="local"')},
                "percentunit",
                is_stacked=True,
                about="1 is one worker that does nothing else.",
            ),
            Panel(
                "99 of 100 requests are faster than",
                {"{{request}}": f'max by (request) ({_REQUESTS}_totaltimems{{{_REQUEST},quantile="0.99"}})'},
                "ms",
                about="Since the start of the broker.",
            ),
            Panel(
                "99 of 100, with a worker",
                {"{{request}}": f'max by (request) ({_REQUESTS}_localtimems{{{_REQUEST},quantile="0.99"}})'},
                "ms",
            ),
            Panel(
                "99 of 100, waiting for a worker",
                {"{{request}}": f'max by (request) ({_REQUESTS}_requestqueuetimems{{{_REQUEST},quantile="0.99"}})'},
                "ms",
            ),
        ],
        "How busy brokers are": [
            Panel(
                "Idle workers",
                {"{{instance}}": "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"},
                "percentunit",
            ),
            Panel(
                "Idle network loop",
                {"{{instance}}": "kafka_network_socketserver_networkprocessoravgidle_percent"},
                "percentunit",
            ),
            Panel(
                "Waiting",
                {
                    "for a worker {{instance}}": "kafka_network_requestchannel_requestqueuesize",
                    "for the client {{instance}}": "kafka_network_requestchannel_responsequeuesize",
                    "{{delayedOperation}} {{instance}}": "kafka_server_delayedoperationpurgatory_purgatorysize",
                },
            ),
        ],
        "Connections": [
            Panel(
                "Open",
                {
                    "{{listener}} {{instance}}": "sum by (listener, instance) "
                    "(kafka_server_socket_server_metrics_connection_count)"
                },
            ),
            Panel(
                "New, and refused",
                {
                    "new {{listener}} {{instance}}": "kafka_server_socket_server_metrics_connection_creation_rate",
                    "refused {{instance}}": rate("ottla_connections_rejected_total", "instance"),
                    "bad frames {{instance}}": rate("ottla_frames_rejected_total", "instance"),
                },
                "cps",
            ),
            Panel("Bytes sent, by the way they took", {"{{way}}": rate("ottla_bytes_sent_total", "way")}, "Bps"),
        ],
    },
    [Variable("request", f"{_REQUESTS}_requests_total")],
)

_JOB = 'job=~"$job"'
PIPELINE = Dashboard(
    "pipeline",
    "Pipeline",
    {
        "Rows": [
            Panel(
                "Rows in",
                {"{{job}} / {{query}}": f"ottla_pipeline_input_rows_per_second{{{_JOB}}}"},
                "cps",
                about="As Spark saw it in the last batch.",
            ),
            Panel(
                "Rows that can be processed",
                {"{{job}} / {{query}}": f"ottla_pipeline_processed_rows_per_second{{{_JOB}}}"},
                "cps",
                about="While this is above the rows in, a query keeps up.",
            ),
            Panel(
                "Rows done",
                {"{{job}} / {{query}}": rate("ottla_pipeline_rows_total", "job", "query", labels=_JOB)},
                "cps",
            ),
        ],
        "Batches": [
            Panel(
                "Records behind",
                {"{{job}} / {{topic}}": f"sum by (job, topic) (ottla_pipeline_lag_records{{{_JOB}}})"},
            ),
            Panel(
                "Batches",
                {"{{job}} / {{query}}": rate("ottla_pipeline_batches_total", "job", "query", labels=_JOB)},
                "cps",
            ),
            Panel(
                "Time of a batch",
                {
                    "mean {{job}} / {{query}}": rate(
                        "ottla_pipeline_batch_duration_seconds_sum", "job", "query", labels=_JOB
                    )
                    + " / "
                    + rate("ottla_pipeline_batch_duration_seconds_count", "job", "query", labels=_JOB),
                    "95 of 100 {{job}} / {{query}}": "histogram_quantile(0.95, "
                    + rate("ottla_pipeline_batch_duration_seconds_bucket", "job", "query", "le", labels=_JOB)
                    + ")",
                },
                "s",
            ),
        ],
    },
    [Variable("job", "ottla_pipeline_batches_total")],
)

DASHBOARDS: Final = (CLUSTER, TOPICS, GROUPS, REQUESTS, PIPELINE)


def text_of(dashboard: Dashboard) -> str:
    """Return the file of a dashboard."""
    return json.dumps(dashboard.to_json(), indent=2) + "\n"


def main() -> int:
    """Write the files."""
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(text_of(dashboard))
    return 0


if __name__ == "__main__":
    sys.exit(main())
