"""Each rule that a broker breaks turns its check red, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.client.certify.lies import LIES, other_code
from tests.client.certify.lying_broker import Lie, LyingBroker
from tests.kit.broker_process import BrokerProcess

from ottla.client.certify.check import Check
from ottla.client.certify.runner import Verdict, certify, selected
from ottla.client.certify.table import all_checks
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode

SECONDS_MAX = 20.0
# It waits for a session timeout, whatever the broker does.
SLOW = {"groups/silent-member"}
# What our brokers do not promise: docs/GUARANTEES.md.
BY_DESIGN = {"produce/broken-compression"}


async def failed(bootstrap: str, wanted: Callable[[Check], bool]) -> dict[str, str]:
    """Run some checks; return those that failed, with what they saw."""
    checks = [check for check in all_checks() if wanted(check) and check.path not in SLOW | BY_DESIGN]
    settings = ClientSettings.from_kwargs({"bootstrap_servers": bootstrap})
    card = await certify(settings, checks, seconds_max=SECONDS_MAX)
    assert card.left == []
    return {
        result.check.path: f"expected {result.expected}, saw {result.seen}"
        for result in card.results
        if result.verdict is Verdict.FAILED
    }


@pytest.mark.parametrize("lie", LIES, ids=str)
async def test_a_broken_rule_is_noticed(broker: BrokerProcess, lie: Lie) -> None:
    """By its check: a relay between the checks and a real broker breaks the rule."""
    async with LyingBroker(broker.bootstrap, lie).running() as bootstrap:
        found = await failed(bootstrap, lambda check: check.path in lie.red)
    assert set(found) == lie.red, found


@pytest.mark.long
@pytest.mark.parametrize("lie", LIES, ids=str)
async def test_a_broken_rule_is_noticed_by_no_other_check(broker: BrokerProcess, lie: Lie) -> None:
    """Of the same subject."""
    subjects = {path.partition("/")[0] for path in lie.red}
    async with LyingBroker(broker.bootstrap, lie).running() as bootstrap:
        found = await failed(bootstrap, lambda check: check.subject in subjects)
    assert set(found) == lie.red, found


async def test_a_user_without_rights_gets_reasons(broker: BrokerProcess) -> None:
    """Checks that the user may not run are not applicable, and none is red."""
    refusal = other_code(Api.CREATE_TOPICS, ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with LyingBroker(broker.bootstrap, Lie("no rights", set(), response=refusal)).running() as bootstrap:
        card = await certify(
            ClientSettings.from_kwargs({"bootstrap_servers": bootstrap}),
            selected(all_checks(), ["produce", "transactions"]),
            seconds_max=SECONDS_MAX,
        )
    assert {result.verdict for result in card.results if result.check.name != "timeouts"} == {Verdict.NOT_APPLICABLE}
    reasons = {result.reason for result in card.results if result.check.brokers == 1}
    assert "no rights: CreateTopics is answered TOPIC_AUTHORIZATION_FAILED" in reasons
    assert card.left == []


@pytest.mark.long
async def test_an_honest_relay_is_not_noticed(broker: BrokerProcess) -> None:
    """So what is red in the other tests is red because of the lie."""
    async with LyingBroker(broker.bootstrap, Lie("nothing", set())).running() as bootstrap:
        assert await failed(bootstrap, lambda check: True) == {}
