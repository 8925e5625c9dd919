"""A cluster with passwords and ACLs: nothing without a login, and then what the user's rights allow."""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tests.console.console_client import ConsoleClient, running_console
from tests.kit.broker_process import BrokerProcess
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.admin.security_results import AclBinding, AclOperation, ResourceType, ScramCredentialUpsertion
from ottla.client.producer.producer import Producer
from ottla.console.api.table import ROUTES

_USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + f'username="admin" password="{_USERS["admin"]}" '
    + " ".join(f'user_{name}="{password}"' for name, password in _USERS.items())
    + ";"
)
SECURITY = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
OPEN_TOPIC = "for-alice"
SECRET_TOPIC = "for-nobody"


@pytest.fixture(scope="module")
def secure_broker(
    zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker that asks for passwords and checks ACLs; `admin` may do everything."""
    overrides = (
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={_LOGIN}",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:admin",
        "ottla.sasl.plain.allow.without.tls=true",
        "connection.failed.authentication.delay.ms=1",
    )
    folder = tmp_path_factory.mktemp("secure-console")
    connect = ZooKeeper(zookeeper_server).connect
    with BrokerProcess(folder, connect, *overrides, protocol="SASL_PLAINTEXT") as broker:
        asyncio.run(_prepare(broker))
        yield broker


async def _prepare(broker: BrokerProcess) -> None:
    """Make two topics, of which alice may read one, and a user with a SCRAM password."""
    as_admin: Any = {
        "bootstrap_servers": broker.bootstrap,
        **SECURITY,
        "sasl_plain_username": "admin",
        "sasl_plain_password": _USERS["admin"],
    }
    async with Admin(**as_admin) as admin:
        await admin.create_topics([NewTopic(name, num_partitions=1) for name in (OPEN_TOPIC, SECRET_TOPIC)])
        rights = [AclBinding("User:alice", AclOperation.READ, ResourceType.TOPIC, OPEN_TOPIC)]
        await admin.create_acls(rights)
        await admin.alter_user_scram_credentials([ScramCredentialUpsertion("carol", "carol-secret")])
    async with Producer(**as_admin) as producer:
        for topic in (OPEN_TOPIC, SECRET_TOPIC):
            await producer.send_and_wait(topic, b"hidden treasure")


@pytest_asyncio.fixture
async def console(secure_broker: BrokerProcess) -> AsyncIterator[ConsoleClient]:
    """A console on the secure broker."""
    async with running_console(secure_broker.bootstrap, client=SECURITY) as client:
        yield client


async def log_in(console: ConsoleClient, user: str, **more: Any) -> Any:
    return await console.post("/session", {"username": user, "password": f"{user}-secret", **more})


async def test_without_a_login_there_is_nothing(console: ConsoleClient) -> None:
    """Every route but the login itself."""
    values = {"topic": "t", "group": "g", "partition": "0", "broker_id": "1", "kind": "topic", "name": "t", "user": "u"}
    for route in ROUTES:
        if not route.is_public:
            body: Any = None if route.method == "GET" else {}
            problem = await console.send(route.method, route.path.format(**values), body, status=401)
            assert problem["title"] == "Log in first"
    session = await console.get("/session")
    assert (session["user"], session["needs_login"], session["mechanisms"][0]) == (None, True, "PLAIN")


async def test_a_user_sees_and_does_what_acls_allow(console: ConsoleClient) -> None:
    """Alice reads her topic; the other one does not exist for her, and she changes nothing."""
    await log_in(console, "alice")
    assert [row["name"] for row in (await console.get("/topics"))["items"]] == [OPEN_TOPIC]
    lines = await console.lines(f"/topics/{OPEN_TOPIC}/records")
    assert lines[0]["value"]["text"] == "hidden treasure"
    await console.get(f"/topics/{SECRET_TOPIC}", status=404)
    for path in (f"/topics/{SECRET_TOPIC}/records", f"/topics/{SECRET_TOPIC}/export"):
        problem = await console.get(path, status=403)
        assert (problem["code"], "treasure" in str(problem)) == ("TOPIC_AUTHORIZATION_FAILED", False)
    refused = [
        ("POST", "/topics", {"name": "new"}),
        ("DELETE", f"/topics/{OPEN_TOPIC}", {"confirm": OPEN_TOPIC}),
        ("POST", f"/topics/{OPEN_TOPIC}/records", {"value": {"text": "x"}}),
        ("POST", f"/topics/{OPEN_TOPIC}/trim", {"to": "end", "confirm": OPEN_TOPIC, "dry_run": False}),
        ("PATCH", f"/options/topic/{OPEN_TOPIC}", {"set": {"retention.ms": "1"}, "dry_run": False}),
        ("POST", "/users", {"user": "x", "password": "y"}),
        ("GET", "/users", None),
        ("GET", "/acls", None),
        ("GET", "/quotas", None),
        ("GET", "/options/broker/1", None),
    ]
    for method, path, body in refused:
        problem = await console.send(method, path, body, status=403)
        assert problem["code"].endswith("AUTHORIZATION_FAILED"), (method, path, problem)
    # The HTTP ports of brokers have no ACLs, so they are for users who may see the options of brokers.
    for path in ("/clients", "/requests", "/timeline"):
        answer = await console.get(path)
        assert (answer["items"], answer["unknown"]) == ([], "broker 1 did not describe its options")


async def test_an_administrator_sees_and_explains(console: ConsoleClient) -> None:
    """Who may read what, and which ACL says so."""
    await log_in(console, "admin")
    assert {row["name"] for row in (await console.get("/topics"))["items"]} >= {OPEN_TOPIC, SECRET_TOPIC}
    assert [each["user"] for each in (await console.get("/users"))["items"]] == ["carol"]
    ask: dict[str, Any] = {"operation": "read", "resource_name": OPEN_TOPIC}
    allowed = await console.get("/acls/explain", principal="alice", **ask)
    assert (allowed["is_allowed"], len(allowed["decided_by"])) == (True, 1)
    assert allowed["sentence"] == f"Yes: User:alice may read topic {OPEN_TOPIC}, because of an ACL for exactly that."
    refused = await console.get("/acls/explain", principal="bob", **ask)
    assert (refused["is_allowed"], refused["sentence"]) == (
        False,
        f"No: no ACL allows User:bob to read topic {OPEN_TOPIC}.",
    )
    assert refused["command"] == f"ottla acl create --principal User:bob --topic {OPEN_TOPIC} --operation read --allow"
    both = await console.get("/acls/explain", principal="admin", **ask)
    assert both["sentence"] == "Yes: User:admin is a super user, and may do everything."
    clients = await console.get("/clients")
    assert {"User:admin"} <= {row["principal"] for row in clients["items"]}
    assert {row["protocol"] for row in clients["items"]} == {"SASL"}
    acl = {
        "principal": "bob",
        "operation": "write",
        "resource_type": "topic",
        "resource_name": "b-",
        "pattern_type": "prefixed",
    }
    await console.post("/acls", {"acls": [acl], "dry_run": False})
    listed = (await console.get("/acls", resource_type="topic", resource_name="b-1"))["items"]
    assert [(each["principal"], each["operation"], each["pattern_type"]) for each in listed] == [
        ("User:bob", "write", "prefixed")
    ]
    await console.send("DELETE", "/acls", {"acls": [acl], "dry_run": False})
    user = {"user": "dave", "password": "dave-secret"}
    planned = await console.post("/users", {**user, "dry_run": True})
    assert planned["command"] == "ottla user create dave --mechanism SCRAM-SHA-512"
    assert [each["user"] for each in (await console.get("/users"))["items"]] == ["carol"]
    assert (await console.post("/users", user))["command"] == planned["command"]
    planned = await console.post("/users", {**user, "dry_run": True})
    assert planned["command"] == "ottla user update dave --mechanism SCRAM-SHA-512"
    await console.send("DELETE", "/users/dave", {"confirm": "carol"}, status=400)
    planned = await console.send("DELETE", "/users/dave", {"confirm": "", "dry_run": True})
    assert planned["changes"][0]["before"] == "passwords for SCRAM-SHA-512"
    deleted = await console.send("DELETE", "/users/dave", {"confirm": "dave"})
    assert (deleted["command"], deleted["is_dry_run"]) == ("ottla user delete dave", False)
    assert [each["user"] for each in (await console.get("/users"))["items"]] == ["carol"]
    quota = {"entity": {"user": "bob"}, "quotas": {"producer_byte_rate": 10_485_761}, "dry_run": False}
    changed = await console.send("PATCH", "/quotas", quota)
    assert changed["command"] == "ottla quota alter --user bob --produce 10485761"
    assert {"entity": {"user": "bob"}, "quotas": {"producer_byte_rate": 10_485_761}} in (await console.get("/quotas"))[
        "items"
    ]
    await console.send("PATCH", "/quotas", {**quota, "quotas": {"producer_byte_rate": None}})
    assert (await console.get("/acls", resource_type="topic", resource_name="b-1"))["items"] == []


async def test_scram_and_basic_work_too(console: ConsoleClient) -> None:
    """A mechanism that the user chooses, and curl without a cookie."""
    assert (await log_in(console, "carol", mechanism="SCRAM-SHA-512"))["user"] == "carol"
    basic = {"Authorization": "Basic " + b64encode(b"alice:alice-secret").decode()}
    answer = await console.send("GET", "/session", headers=basic)
    assert answer["user"] == "alice"
    wrong = {"Authorization": "Basic " + b64encode(b"alice:wrong").decode()}
    await console.send("GET", "/topics", status=401, headers=wrong)
    await asyncio.gather(*(console.send("GET", "/topics", headers=basic) for _ in range(5)))
    sessions = console.server._sessions
    assert sessions is not None
    assert sorted(each.user for each in sessions._by_hash.values()) == ["alice", "carol"]
    await console.send("GET", "/topics", status=401, headers={"Authorization": "Basic !"})


async def test_the_cookie_is_for_this_site_and_no_script(console: ConsoleClient) -> None:
    """A login does not go on with an id that was there before, and a logout ends it."""
    url = f"{console.base}/api/v1/session"
    body = {"username": "alice", "password": "alice-secret"}
    headers = {"X-Ottla-Console": "1"}
    async with console.http.post(url, json=body, headers=headers) as answer:
        (cookie,) = answer.cookies.values()
        first = cookie.value
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
        assert len(first) >= 43
    async with console.http.post(url, json=body, headers=headers) as answer:
        (cookie,) = answer.cookies.values()
        assert cookie.value != first
    planted = {"Cookie": f"{cookie.key}={first}"}
    console.http.cookie_jar.clear()
    await console.send("GET", "/topics", status=401, headers=planted)
    mine = {"Cookie": f"{cookie.key}={cookie.value}"}
    assert (await console.send("GET", "/session", headers=mine))["user"] == "alice"
    for forged in ("x" * 43, cookie.value[:-1], "", "é", "a" * 5000):
        await console.send("GET", "/topics", status=401, headers={"Cookie": f"{cookie.key}={forged}"})
    await console.send("DELETE", "/session", {}, headers={**mine, "X-Ottla-Console": "1"})
    await console.send("GET", "/topics", status=401, headers=mine)


async def test_wrong_passwords_are_slowed_down(console: ConsoleClient) -> None:
    """The right one does not help then, either, until the pause is over."""
    for _ in range(5):
        problem = await console.post("/session", {"username": "bob", "password": "guess"}, status=401)
        assert problem["title"] == "The user or the password is wrong"
    problem = await console.post("/session", {"username": "bob", "password": "bob-secret"}, status=429)
    assert problem["title"] == "Too many failed logins"


async def test_a_stream_ends_with_the_session(console: ConsoleClient) -> None:
    """Somebody who logged out, or was logged out, reads nothing more."""
    await log_in(console, "alice")
    url = f"{console.base}/api/v1/topics/{OPEN_TOPIC}/records"
    async with console.http.get(url, params={"follow": "true", "from": "end"}) as answer:
        await answer.content.readline()
        await console.send("DELETE", "/session", {})
        # The connection is cut, or the stream ends; nothing comes any more.
        with contextlib.suppress(aiohttp.ClientError):
            while await answer.content.readline():
                pass


async def test_passwords_are_shown_nowhere(console: ConsoleClient) -> None:
    """Neither in answers nor in what objects say of themselves."""
    session = await log_in(console, "alice")
    sessions = console.server._sessions
    assert sessions is not None
    shown = str(session) + repr(sessions) + repr(list(sessions._by_hash.values())) + repr(console.server._settings)
    assert "alice-secret" not in shown
