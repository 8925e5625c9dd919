"""The login in a real browser: the page shows what the user's rights allow, and nothing after the logout."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from tests.console.browser.chromium import console_page, running_chromium
from tests.console.console_client import running_console
from tests.kit.broker_process import BrokerProcess
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.admin.security_results import AclBinding, AclOperation, ResourceType

pytestmark = pytest.mark.long

SECURITY = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";'
)


@pytest.fixture
def secured(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with passwords and ACLs, and two topics; alice may read one of them."""
    overrides = (
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={LOGIN}",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:admin",
        "ottla.sasl.plain.allow.without.tls=true",
        "connection.failed.authentication.delay.ms=1",
    )
    connect = ZooKeeper(zookeeper_server).connect
    with BrokerProcess(tmp_path, connect, *overrides, protocol="SASL_PLAINTEXT") as broker:
        asyncio.run(_prepare(broker.bootstrap))
        yield broker


async def _prepare(bootstrap: str) -> None:
    user: Any = {**SECURITY, "sasl_plain_username": "admin", "sasl_plain_password": "admin-secret"}
    async with Admin(bootstrap_servers=bootstrap, **user) as admin:
        await admin.create_topics([NewTopic(name, num_partitions=1) for name in ("orders", "salaries")])
        await admin.create_acls([AclBinding("User:alice", AclOperation.READ, ResourceType.TOPIC, "orders")])


async def test_a_user_logs_in_sees_what_acls_allow_and_logs_out(secured: BrokerProcess) -> None:
    """A wrong password is said in words; a refusal names what is missing; the logout ends it all."""
    async with (
        running_console(secured.bootstrap, client=SECURITY) as console,
        running_chromium() as browser,
        # The browser logs every refused request.
        console_page(browser, console.base, is_expected=lambda text: "Failed to load resource" in text) as tab,
    ):
        page = tab.page
        await tab.open("topics", "form.login")
        for password in ("guessed", "alice-secret"):
            await page.get_by_label("User").fill("alice")
            await page.get_by_label("Password").fill(password)
            await page.get_by_role("button", name="Log in").click()
            if password == "guessed":
                await expect(page.get_by_role("alert")).to_contain_text("wrong")
                assert await tab.violations() == []
        await expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
        await expect(page.get_by_text("salaries")).to_have_count(0)
        await tab.open("topics/salaries/records")
        await expect(page.get_by_role("alert").first).to_be_visible()
        for path in ("overview", "security", "security/users", "clients", "options/1", "transactions", "timeline"):
            await tab.open(path)
            await tab.settle()
            assert await tab.violations() == [], path
        await tab.open("security/may?principal=alice&operation=read&name=orders")
        await tab.settle()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Password")).to_be_visible()
        await page.reload()
        await expect(page.get_by_label("Password")).to_be_visible()
        assert await tab.all_faults() == []
