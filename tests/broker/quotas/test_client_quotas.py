"""Quotas as they are set in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.broker.cluster.znodes import MalformedNodeError
from ottla.broker.config import BrokerConfig
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.security.session import Session


class FakeConfigs:
    """What is set, by path below /config; None where a node cannot be read."""

    def __init__(self, nodes: dict[str, Mapping[str, str] | None]) -> None:
        self.nodes = nodes

    def names(self, entity_type: str) -> list[str]:
        """The names below a path."""
        prefix = f"{entity_type}/"
        return sorted({path[len(prefix) :].split("/")[0] for path in self.nodes if path.startswith(prefix)})

    def read(self, entity_type: str, name: str) -> Mapping[str, str]:
        """One node."""
        found = self.nodes.get(f"{entity_type}/{name}", {})
        if found is None:
            raise MalformedNodeError(f"{entity_type}/{name}")
        return found

    def read_types(
        self, entity_types: Sequence[str], *, skip_malformed: bool
    ) -> dict[str, dict[str, Mapping[str, str]]]:
        """All of some types."""
        assert skip_malformed
        return {
            entity_type: {
                name: config for name in self.names(entity_type) if (config := self.nodes.get(f"{entity_type}/{name}"))
            }
            for entity_type in entity_types
        }


def quotas_of(nodes: dict[str, Mapping[str, str] | None]) -> tuple[ClientQuotas, FakeConfigs]:
    """Quotas that have been read."""
    configs = FakeConfigs(nodes)
    made: Any = configs
    quotas = ClientQuotas(made, lambda: BrokerConfig.of({"zookeeper.connect": "unused:1"}), lambda: 0.0)
    quotas.start()
    return quotas, configs


def limit(quotas: ClientQuotas, kind: str, user: str, client_id: str) -> float | None:
    """The limit that holds for somebody."""
    found = getattr(quotas, kind).limit_of(Session("PLAINTEXT", "127.0.0.1", f"User:{user}"), client_id)
    return None if found is None else found.value


def test_every_kind_of_quota_is_read_for_every_kind_of_entity() -> None:
    """With names as they stand in paths."""
    quotas, _ = quotas_of(
        {
            "users/a%2Fb": {"producer_byte_rate": "10", "SCRAM-SHA-256": "salt="},
            "users/<default>": {"consumer_byte_rate": "20"},
            "users/eve/clients/c%20d": {"request_percentage": "12.5"},
            "clients/<default>": {"controller_mutation_rate": "0.5"},
            "ips/10.0.0.1": {"connection_creation_rate": "3"},
            "ips/<default>": {"connection_creation_rate": "7"},
        }
    )

    assert quotas.is_set
    assert limit(quotas, "produce", "a/b", "any") == 10
    assert limit(quotas, "fetch", "anybody", "any") == 20
    assert limit(quotas, "request", "eve", "c d") == 12.5
    assert limit(quotas, "request", "eve", "other") is None
    assert limit(quotas, "mutation", "anybody", "any") == 0.5
    assert [quotas.connection_rate(address) for address in ("10.0.0.1", "::1")] == [3, 7]


def test_without_quotas_there_is_nothing_to_look_at() -> None:
    """Credentials are none."""
    quotas, _ = quotas_of({"users/alice": {"SCRAM-SHA-256": "salt="}})

    assert not quotas.is_set
    assert quotas.connection_rate("10.0.0.1") is None


def test_changes_hold_at_once() -> None:
    """Also when a quota goes."""
    quotas, configs = quotas_of({})
    configs.nodes["users/u/clients/c"] = {"producer_byte_rate": "10"}
    quotas.entity_changed("users", "u/clients/c")
    quotas.entity_changed("topics", "t")

    assert quotas.is_set
    assert limit(quotas, "produce", "u", "c") == 10
    assert limit(quotas, "produce", "u", "d") is None

    configs.nodes["users/u/clients/c"] = {}
    quotas.entity_changed("users", "u/clients/c")

    assert not quotas.is_set


def test_what_cannot_be_read_leaves_what_was() -> None:
    """A broken node or number limits nobody else."""
    quotas, configs = quotas_of(
        {"users/u": {"producer_byte_rate": "10"}, "users/v": {"producer_byte_rate": "nan"}, "users/w": None}
    )
    configs.nodes["users/u"] = None
    quotas.entity_changed("users", "u")

    assert limit(quotas, "produce", "u", "c") == 10
    assert limit(quotas, "produce", "v", "c") is None


def test_a_new_session_reads_what_was_missed() -> None:
    """Notes of changes do not last for ever."""
    quotas, configs = quotas_of({"users/u": {"producer_byte_rate": "10"}})
    configs.nodes = {"users/u": {"producer_byte_rate": "20"}}
    quotas.session_expired()

    assert limit(quotas, "produce", "u", "c") == 10
    quotas.session_renewed()

    assert limit(quotas, "produce", "u", "c") == 20
