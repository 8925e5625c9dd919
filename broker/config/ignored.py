"""Options of Kafka that Ottla accepts but does not use.

They are accepted so that a file written for Kafka loads. The broker logs those that are set when it starts. An entry
that ends with a dot stands for all names that begin with it.
"""

from __future__ import annotations

# The reason why they are not used -> their names.
IGNORED_BROKER_OPTIONS = {
    "KRaft: the metadata is in ZooKeeper": """
        broker.heartbeat.interval.ms broker.session.timeout.ms controller.listener.names controller.quorum.
        early.start.listeners eligible.leader.replicas.enable initial.broker.registration.timeout.ms
        log.dir.failure.timeout.ms metadata. process.roles sasl.mechanism.controller.protocol
        server.max.startup.time.ms unclean.leader.election.interval.ms unstable.api.versions.enable
        unstable.feature.versions.enable zookeeper.metadata.migration.""",
    "tiered storage: logs are on local disks": """
        log.local.retention.bytes log.local.retention.ms remote. rlmm.config. rsm.config.""",
    "share groups, moving members between protocols, and threads of Kafka's coordinator": """
        group.consumer.migration.policy group.coordinator. group.share.""",
    "the protocol and the record format are those of Kafka 3.9": """
        inter.broker.protocol.version log.message.format.version""",
    "Kerberos: SASL is PLAIN, SCRAM or OAUTHBEARER": """
        sasl.kerberos. sasl.login.""",
    "plug-ins are Java classes": """
        alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name
        principal.builder.class sasl.client.callback.handler.class sasl.server.callback.handler.class
        security.providers ssl.engine.factory.class""",
    "settings of Java's TLS": """
        ssl.allow.dn.changes ssl.allow.san.changes ssl.keymanager.algorithm ssl.protocol ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm""",
    "metrics are served over HTTP": """
        auto.include.jmx.reporter kafka.metrics. metric.reporters metrics. telemetry.max.bytes confluent.""",
    "secrets are not stored in ZooKeeper": """
        password.encoder.""",
    "TLS to ZooKeeper needs no other class, and checks certificates without asking their authority": """
        zookeeper.clientCnxnSocket zookeeper.ssl.crl.enable zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol""",
}

IGNORED_TOPIC_OPTIONS = frozenset(
    {
        "local.retention.bytes",
        "local.retention.ms",
        "message.format.version",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)

# In lower case, because environment variables lose the case of a name.
_NAMES = frozenset(name.lower() for names in IGNORED_BROKER_OPTIONS.values() for name in names.split())
_FAMILIES = tuple(name for name in _NAMES if name.endswith("."))


def is_ignored(name: str) -> bool:
    """Whether Kafka has this broker option and Ottla does not use it."""
    return name.lower() in _NAMES or name.lower().startswith(_FAMILIES)
