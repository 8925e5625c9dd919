"""What programs other than Python clients do while they are recorded: Kafka's own tools, kcat, and the brokers."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import subprocess
import time
from typing import Any

from scripts.record_cluster import LOG_DIRS, Cluster, java_command
from scripts.record_workloads import attempt, ck, ck_admin, confluent_kafka_produce, confluent_kafka_transact

log = logging.getLogger("record_frames")

TOOL_SECONDS_MAX = 30
IN_SYNC_SECONDS_MAX = 20
# One value for each version of the messages between controller and brokers, but not below 0.10.2: earlier brokers
# do not tell each other the names of listeners, and this cluster needs them.
INTER_BROKER_VERSIONS = (
    *("3.9", "3.6", "3.5", "3.4", "3.3", "3.2", "3.1", "3.0", "2.8", "2.7", "2.6", "2.4", "2.4-IV0", "2.3", "2.2"),
    *("2.1", "2.0", "1.1", "1.0", "0.11.0", "0.10.2"),
)
# {at} and {at_secure} name the cluster, {folder} the folder with the files that the commands read.
KCAT_COMMANDS = """\
-P -t kcat -K : -H h=1
-P -t kcat -z gzip -X enable.idempotence=true
-P -t kcat -z snappy -X acks=0
-P -t kcat -z lz4 -X acks=1
-P -t kcat -z zstd
-C -t kcat -o beginning -e
-Q -t kcat:0:-1
-L
-G kcat-group -e -o beginning kcat
"""
JAVA_COMMANDS = """\
tools.TopicCommand {at} --create --topic java --partitions 1 --replication-factor 2
kafka.tools.ConsoleProducer {at} --topic java --request-required-acks 0 --property parse.headers=true
kafka.tools.ConsoleProducer {at} --topic java --compression-codec gzip --request-required-acks 1
kafka.tools.ConsoleProducer {at} --topic java --compression-codec snappy
kafka.tools.ConsoleProducer {at} --topic java --compression-codec lz4
kafka.tools.ConsoleProducer {at} --topic java --compression-codec zstd
tools.TransactionalMessageCopier --broker-list {bootstrap} --input-topic java --input-partition 0 --max-messages 4 \
 --output-topic java-copy --transactional-id java --consumer-group java-copy --transaction-size 2 --use-group-metadata
tools.TopicCommand {at} --alter --topic java --partitions 3
tools.TopicCommand {at} --describe
tools.consumer.ConsoleConsumer {at} --topic java --from-beginning --group java --timeout-ms 4000
tools.consumer.ConsoleConsumer {at} --topic java --group java --timeout-ms 4000 --isolation-level read_committed
tools.consumer.ConsoleConsumer {at} --topic java --partition 0 --offset earliest --timeout-ms 3000
tools.consumer.ConsoleConsumer {at} --topic java --timeout-ms 3000 --consumer-property group.protocol=consumer
tools.consumer.group.ConsumerGroupCommand {at} --list --state
tools.consumer.group.ConsumerGroupCommand {at} --describe --all-groups
tools.consumer.group.ConsumerGroupCommand {at} --describe --group java --members
tools.consumer.group.ConsumerGroupCommand {at} --reset-offsets --group java --all-topics --to-earliest --execute
tools.consumer.group.ConsumerGroupCommand {at} --delete-offsets --group java --topic java
tools.consumer.group.ConsumerGroupCommand {at} --delete --group java
tools.GetOffsetShell {at} --topic java --time -3
kafka.admin.ConfigCommand {at} --describe --topic java --all
kafka.admin.ConfigCommand {at} --describe --broker 1
kafka.admin.ConfigCommand {at} --describe --broker-logger 1
kafka.admin.ConfigCommand {at} --describe --client-defaults
kafka.admin.ConfigCommand {at} --alter --topic java --add-config retention.ms=1000000
kafka.admin.ConfigCommand {at} --alter --client c --user u --add-config producer_byte_rate=1000000
kafka.admin.ConfigCommand {at} --describe --client c --user u
kafka.admin.ConfigCommand {at} --alter --user alice --add-config SCRAM-SHA-256=[iterations=4096,password=alice-secret]
kafka.admin.ConfigCommand {at} --describe --user alice
kafka.admin.AclCommand {at} --add --allow-principal User:alice --operation Read --topic java --force
kafka.admin.AclCommand {at} --list
kafka.admin.AclCommand {at} --remove --allow-principal User:alice --operation Read --topic java --force
tools.TransactionsCommand {at} list
tools.TransactionsCommand {at} describe --transactional-id java
tools.TransactionsCommand {at} describe-producers --topic java-copy --partition 0
tools.TransactionsCommand {at} abort --topic java --partition 0 --producer-id 0 --producer-epoch 0 --coordinator-epoch 0
tools.LogDirsCommand {at} --describe --topic-list java
tools.DeleteRecordsCommand {at} --offset-json-file {folder}/records.json
tools.LeaderElectionCommand {at} --election-type preferred --all-topic-partitions
tools.reassign.ReassignPartitionsCommand {at} --execute --throttle 9999999 --reassignment-json-file {folder}/move.json
tools.reassign.ReassignPartitionsCommand {at} --verify --reassignment-json-file {folder}/move.json
tools.reassign.ReassignPartitionsCommand {at} --list
tools.FeatureCommand {at} describe
kafka.admin.BrokerApiVersionsCommand {at}
tools.ClusterTool cluster-id {at}
tools.TopicCommand {at} --delete --topic java
"""
SECURE_CONFIG = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
 username="admin" password="admin-secret";
"""
RECORDS_JSON = '{"version":1,"partitions":[{"topic":"java","partition":0,"offset":1}]}'
MOVE_JSON = (
    '{"version":1,"partitions":[{"topic":"java","partition":0,"replicas":[2,1],'
    f'"log_dirs":["{LOG_DIRS}/2b","any"]}}]}}'
)


def run_tool(command: list[str], standard_input: str = "") -> str:
    """Run a program to its end and give what it prints; one that fails is reported and passed over."""
    try:
        return subprocess.run(
            command, input=standard_input, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=True
        ).stdout
    except subprocess.SubprocessError as error:
        log.debug("passed over: %s", error)
        return ""


def run_kcat(cluster: Cluster) -> None:
    """Drive an older librdkafka, where kcat is installed."""
    if shutil.which("kcat") is None:
        log.info("kcat is not installed")
        return
    for line in KCAT_COMMANDS.splitlines():
        run_tool(["kcat", "-b", cluster.bootstrap, *shlex.split(line)], "key:value\nkey:\n")


def run_java_tools(cluster: Cluster) -> None:
    """Drive Kafka's own clients through its command line tools."""
    for name, text in {"secure": SECURE_CONFIG, "records.json": RECORDS_JSON, "move.json": MOVE_JSON}.items():
        (cluster.folder / name).write_text(text)

    def java(line: str, standard_input: str = "") -> str:
        at = f"--bootstrap-server {cluster.bootstrap}"
        at_secure = f"--bootstrap-server {cluster.secure_bootstrap} --command-config {cluster.folder}/secure"
        line = line.format(at=at, at_secure=at_secure, bootstrap=cluster.bootstrap, folder=cluster.folder)
        return run_tool(java_command(*shlex.split(re.sub("^tools", "org.apache.kafka.tools", line))), standard_input)

    for line in JAVA_COMMANDS.splitlines():
        java(line, "h:1\tvalue\nh:2\tvalue\n")
    tokens = "tools.DelegationTokenCommand {at_secure}"
    created = java(f"{tokens} --create --max-life-time-period -1")
    java(f"{tokens} --describe")
    for mac in re.findall(r"[\w+/]{60,}==", created):
        java(f"{tokens} --renew --renew-time-period -1 --hmac {mac}")
        java(f"{tokens} --expire --expiry-time-period -1 --hmac {mac}")


def make_brokers_talk(cluster: Cluster) -> None:
    """Give the controller and the replicas reasons to send every message that they know."""
    common = {"bootstrap.servers": cluster.bootstrap}
    admin = ck_admin.AdminClient(common)
    names = ["brokers", "brokers-2"]
    attempt(admin.create_topics, [ck_admin.NewTopic(name, 4, 2) for name in names])
    consumer = ck.Consumer(common | {"group.id": "brokers", "auto.offset.reset": "earliest"})
    consumer.subscribe(names)
    attempt(confluent_kafka_produce, common | {"acks": "all"}, names[0])
    attempt(consumer.consume, 1, timeout=10)
    attempt(confluent_kafka_transact, common, names[0], consumer)
    consumer.close()
    cluster.stop_broker(2)
    attempt(confluent_kafka_produce, common | {"acks": "1"}, names[0])
    cluster.start_broker(2)
    wait_until_in_sync(admin)
    # The elections make followers ask leaders of a new epoch where their logs part.
    attempt(admin.elect_leaders, ck.ElectionType.PREFERRED)
    attempt(confluent_kafka_produce, common | {"acks": "all"}, names[0])
    attempt(admin.delete_topics, names)


def wait_until_in_sync(admin: Any) -> None:
    """Wait until every replica is in its ISR, which leaders tell the controller."""
    until = time.monotonic() + IN_SYNC_SECONDS_MAX
    while time.monotonic() < until:
        topics = admin.list_topics(timeout=10).topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        if all(len(partition.isrs) == len(partition.replicas) for partition in partitions):
            return
        time.sleep(0.2)
    log.debug("passed over: the replicas are not in sync")
