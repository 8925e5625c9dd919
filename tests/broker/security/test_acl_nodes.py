"""ACLs as text in ZooKeeper: what we write we read, and of what others write nothing but one error comes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.cluster.znodes import MalformedNodeError
from ottla.broker.security.acls.acl import PATTERN_TYPES, RESOURCE_TYPES, AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_nodes import AclNode, acl_path, decode_change, encode_change, is_node_name
from ottla.protocol.acls import OPERATIONS, AclOperation, AclPermissionType, PatternType, ResourceType

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
entries = st.builds(
    AclEntry,
    text,
    text,
    st.sampled_from(sorted(OPERATIONS)),
    st.sampled_from([AclPermissionType.DENY, AclPermissionType.ALLOW]),
)
patterns = st.builds(
    ResourcePattern, st.sampled_from(RESOURCE_TYPES), text.filter(is_node_name), st.sampled_from(PATTERN_TYPES)
)
hostile = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=100).map(lambda each: each.encode("utf-8", "surrogatepass")),
    st.sampled_from([b'{"acls":[{}]}', b'{"acls":[1]}', b'{"acls":{}}', b"[]", b"null", b'{"version":1}', b"1e999"]),
)


@given(st.frozensets(entries, max_size=5), st.frozensets(entries, max_size=5))
def test_what_is_written_is_read(first: frozenset[AclEntry], second: frozenset[AclEntry]) -> None:
    """All of it, and after changes what is left."""
    written = AclNode(acls=[]).changed(first, ())
    assert AclNode.decode(written.encode(), "/").entries() == first
    changed = written.changed(second, first)
    assert AclNode.decode(changed.encode(), "/").entries() == second


@given(patterns)
def test_a_note_names_the_pattern_that_it_was_written_for(pattern: ResourcePattern) -> None:
    """Colons, quotes and all."""
    assert decode_change(pattern.pattern_type, encode_change(pattern), "/") == pattern


@examples(300)
@given(hostile, st.sampled_from(PATTERN_TYPES))
def test_hostile_bytes_give_one_kind_of_error(data: bytes, pattern_type: PatternType) -> None:
    """Whatever somebody wrote to ZooKeeper; a name that is read stays within its folder."""
    with suppress(MalformedNodeError):
        AclNode.decode(data, "/").entries()
    with suppress(MalformedNodeError):
        pattern = decode_change(pattern_type, data, "/")
        assert acl_path(pattern).count("/") == (3 if pattern_type is PatternType.LITERAL else 4)


@pytest.mark.parametrize(
    ("operation", "word"),
    [
        (AclOperation.ALL, "All"),
        (AclOperation.CLUSTER_ACTION, "ClusterAction"),
        (AclOperation.DESCRIBE_CONFIGS, "DescribeConfigs"),
        (AclOperation.IDEMPOTENT_WRITE, "IdempotentWrite"),
        (ResourceType.TRANSACTIONAL_ID, "TransactionalId"),
        (ResourceType.DELEGATION_TOKEN, "DelegationToken"),
        (AclPermissionType.DENY, "Deny"),
    ],
)
def test_words_are_those_of_kafka(operation: AclOperation | ResourceType | AclPermissionType, word: str) -> None:
    """Its brokers read them."""
    assert operation.word == word
