"""Who may do what: decisions by ACLs, compared with a slow and obvious model."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.kit.clock import FakeClock
from tests.kit.examples import examples

from ottla.broker.security.acls import authorizer as module
from ottla.broker.security.acls.acl import EVERYBODY, WILDCARD, AclEntry, ResourceAclFilter, ResourcePattern
from ottla.broker.security.acls.acl_snapshot import AclSnapshot, Entries
from ottla.broker.security.acls.authorizer import AclAuthorizer, Authorizer
from ottla.broker.security.audit.audit import Audit, AuditSubject
from ottla.broker.security.session import Session
from ottla.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType

ALICE, BOB, ADMIN = "User:alice", "User:bob", "User:admin"
HERE, THERE = "10.0.0.1", "10.0.0.2"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
Op = AclOperation

ASKED = [READ, WRITE, DESCRIBE, Op.DELETE, Op.DESCRIBE_CONFIGS]

names = st.text("ab", min_size=1, max_size=3)
entries = st.builds(
    AclEntry,
    st.sampled_from([ALICE, BOB, EVERYBODY]),
    st.sampled_from([HERE, THERE, WILDCARD]),
    st.sampled_from([*ASKED, Op.ALL, Op.ALTER, Op.ALTER_CONFIGS]),
    st.sampled_from([ALLOW, DENY]),
)
patterns = st.one_of(
    st.builds(
        ResourcePattern, st.sampled_from([TOPIC, GROUP]), names | st.just(WILDCARD), st.just(PatternType.LITERAL)
    ),
    st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), names, st.just(PatternType.PREFIXED)),
)
acls = st.dictionaries(patterns, st.frozensets(entries, min_size=1, max_size=4), max_size=6)


def authorizer(
    given_acls: dict[ResourcePattern, Entries] | None = None, *, allow_if_no_acl: bool = False
) -> AclAuthorizer:
    """Decide by some ACLs; admin is a super user."""
    return AclAuthorizer([ADMIN], allow_if_no_acl=allow_if_no_acl, snapshot=AclSnapshot(given_acls))


def session(principal: str = ALICE, host: str = HERE) -> Session:
    """Somebody who asks."""
    return Session("PLAINTEXT", host, principal)


def entry(
    permission: AclPermissionType, operation: AclOperation, principal: str = ALICE, host: str = WILDCARD
) -> frozenset[AclEntry]:
    """One ACL."""
    return frozenset({AclEntry(principal, host, operation, permission)})


def model(
    given_acls: dict[ResourcePattern, Entries],
    who: Session,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    *,
    default: bool,
) -> bool:
    """Decide by looking at every ACL there is."""
    concerning = [
        each
        for pattern, found in given_acls.items()
        if pattern.resource_type == kind
        and (
            name.startswith(pattern.name)
            if pattern.pattern_type == PatternType.PREFIXED
            else pattern.name in (name, "*")
        )
        for each in found
    ]
    if not concerning:
        return default
    mine = [
        each
        for each in concerning
        if each.principal in (who.principal, "User:*") and each.host in (who.client_host, "*")
    ]
    if any(each.permission == DENY and each.operation in (operation, Op.ALL) for each in mine):
        return False
    enough = {operation, Op.ALL}
    if operation == DESCRIBE:
        enough |= {READ, WRITE, Op.DELETE, Op.ALTER}
    if operation == Op.DESCRIBE_CONFIGS:
        enough |= {Op.ALTER_CONFIGS}
    return any(each.permission == ALLOW and each.operation in enough for each in mine)


@examples(100)
@given(acls, st.booleans())
def test_decisions_are_those_of_the_model(given_acls: dict[ResourcePattern, Entries], default: bool) -> None:
    """For whoever asks, from wherever, whatever for; and again from what is remembered."""
    decides = authorizer(given_acls, allow_if_no_acl=default)
    questions = itertools.product([ALICE, BOB], [HERE, THERE], ASKED, [TOPIC], ["ab", "bab"])
    for principal, host, operation, kind, name in questions:
        who = session(principal, host)
        expected = model(given_acls, who, operation, kind, name, default=default)
        assert decides.allows(who, operation, kind, name) is expected
        assert decides.allows(who, operation, kind, name) is expected


@examples(200)
@given(acls, st.booleans())
def test_a_right_on_any_resource_is_a_right_on_some_name(
    given_acls: dict[ResourcePattern, Entries], default: bool
) -> None:
    """Names that ACLs have, longer ones, and one that nobody thought of."""
    decides = authorizer(given_acls, allow_if_no_acl=default)
    tried = ["zzz"] + [name + more for pattern in given_acls for name in (pattern.name,) for more in ("", "zzz")]
    for principal in (ALICE, BOB):
        who = session(principal)
        expected = any(model(given_acls, who, WRITE, TOPIC, name, default=default) for name in tried if name != "*")
        assert decides.allows_any(who, WRITE, TOPIC) is expected


def test_without_acls_nobody_gets_in_but_super_users() -> None:
    """Unless the option says that what has no ACL is open."""
    assert not authorizer().allows(session(), READ, TOPIC, "t")
    assert not authorizer().allows_any(session(), WRITE, TOPIC)
    assert authorizer().allows(session(ADMIN), READ, TOPIC, "t")
    assert authorizer().allows_any(session(ADMIN), WRITE, TOPIC)
    assert authorizer(allow_if_no_acl=True).allows(session(), READ, TOPIC, "t")


def test_new_acls_hold_at_once() -> None:
    """Answers that were remembered go with the ACLs that they came from."""
    decides = authorizer({ResourcePattern(TOPIC, "t"): entry(ALLOW, READ)})
    assert decides.allows(session(), READ, TOPIC, "t")
    decides.use(AclSnapshot())
    assert not decides.allows(session(), READ, TOPIC, "t")


def test_one_who_tries_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is bounded."""
    monkeypatch.setattr(module, "CACHED_BYTES_MAX", 4000)
    decides = authorizer({ResourcePattern(TOPIC, "t"): entry(ALLOW, READ)})
    for number in range(100):
        assert not decides.allows(session(), READ, TOPIC, f"name-{number}")
    assert decides.allows(session(), READ, TOPIC, "t")
    assert 0 < len(decides._answers.known) < 4000 / 300


@pytest.mark.parametrize("acls", [{}, {ResourcePattern(TOPIC, "*"): entry(ALLOW, READ)}])
def test_answers_about_long_names_are_not_kept(acls: dict[ResourcePattern, frozenset[AclEntry]]) -> None:
    """No topic has such a name, and some hundred of them would take as much as all others."""
    decides = authorizer(acls)
    for length in (249, 250, 32_767):
        assert decides.allows(session(), READ, TOPIC, "x" * length) is bool(acls)
    assert [len(question[-1]) for question in decides._answers.known] == [249]


def test_a_change_of_the_snapshot_leaves_the_old_one_as_it_was() -> None:
    """Whoever is deciding by it goes on."""
    pattern = ResourcePattern(TOPIC, "t", PatternType.PREFIXED)
    before = AclSnapshot({pattern: entry(ALLOW, READ)})
    after = before.replacing({pattern: frozenset(), ResourcePattern(TOPIC, "u"): entry(ALLOW, READ)})
    assert before.decide(ALICE, HERE, READ, TOPIC, "tt") is True
    assert after.decide(ALICE, HERE, READ, TOPIC, "tt") is None
    assert list(after.acls) == [ResourcePattern(TOPIC, "u")]


def test_operations_are_told_as_bits() -> None:
    """Bit n for the operation with code n, of those that the kind of resource has."""
    decides = authorizer({ResourcePattern(TOPIC, "t"): entry(ALLOW, READ)})
    assert decides.operations(session(), TOPIC, "t") == 1 << READ | 1 << DESCRIBE
    assert decides.operations(session(), CLUSTER) == 0
    everything = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
    assert Authorizer().operations(session(), TOPIC, "t") == everything


FOO = ResourcePattern(TOPIC, "foo")
FOO_PREFIX = ResourcePattern(TOPIC, "fo", PatternType.PREFIXED)
OTHER = ResourcePattern(TOPIC, "bar")
ALL_TOPICS = ResourcePattern(TOPIC, WILDCARD)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ResourceAclFilter(), {FOO, FOO_PREFIX, OTHER, ALL_TOPICS}),
        (ResourceAclFilter(name="foo"), {FOO}),
        (ResourceAclFilter(name="fo"), {FOO_PREFIX}),
        (ResourceAclFilter(name="foo", pattern_type=PatternType.MATCH), {FOO, FOO_PREFIX, ALL_TOPICS}),
        (ResourceAclFilter(pattern_type=PatternType.PREFIXED), {FOO_PREFIX}),
        (ResourceAclFilter(name="*", pattern_type=PatternType.LITERAL), {ALL_TOPICS}),
        (ResourceAclFilter(resource_type=GROUP), set()),
        (ResourceAclFilter(principal=BOB), set()),
        (ResourceAclFilter(principal=ALICE, host="*", operation=READ, permission=ALLOW, name="bar"), {OTHER}),
        (ResourceAclFilter(operation=WRITE), set()),
        (ResourceAclFilter(permission=DENY), set()),
        (ResourceAclFilter(host=HERE), set()),
    ],
)
def test_filters_choose_acls(wanted: ResourceAclFilter, found: set[ResourcePattern]) -> None:
    """MATCH finds all that concern a name, ANY what has the name in any way."""
    snapshot = AclSnapshot(dict.fromkeys([FOO, FOO_PREFIX, OTHER, ALL_TOPICS], entry(ALLOW, READ)))
    assert {binding.pattern for binding in snapshot.bindings(wanted)} == found


def test_refusals_are_written_down_once_in_a_while() -> None:
    """With who, what and where; names cannot break the line, and are cut."""
    clock = FakeClock(0.0)
    decides = AclAuthorizer([], allow_if_no_acl=False, audit=Audit(monotonic=clock))
    who = AuditSubject(session(), "a client")
    with capture_logs() as lines:
        for _ in range(5):
            decides.note_refusals(who, "Fetch", READ, TOPIC, ["evil\nname" + "x" * 1000])
        assert not decides.allows(session(), READ, TOPIC, "quiet")
        clock.now = 11.0
        decides.note_refusals(who, "Produce", WRITE, TOPIC, ["t"])
        decides.note_refusals(who, "Produce", WRITE, TOPIC, [f"t-{number}" for number in range(1000)])
        clock.now = 22.0
        decides.note_refusals(who, "Produce", WRITE, TOPIC, ["t"])
    first, second = lines[0], lines[1]
    assert (first["log_level"], first["event"], first["principal"]) == ("info", "access_denied", ALICE)
    assert (first["operation"], first["api"]) == ("Read", "Fetch")
    assert (first["address"], first["client_id"]) == (HERE, "a client")
    assert first["resource"].startswith("Topic:evil\\nname")
    assert len(first["resource"]) < 300
    assert second["more"] == 4
    assert len(lines) == 102
    assert lines[-1]["more"] == 1001 - 100


def test_what_a_super_user_does_is_written_down_for_those_who_look_closely() -> None:
    """At the level of debugging, and with the reason."""
    with capture_logs() as lines:
        assert authorizer().allows(session(ADMIN), READ, TOPIC, "t")
    (line,) = lines
    assert (line["log_level"], line["event"], line["reason"]) == ("debug", "access_allowed", "super user")
