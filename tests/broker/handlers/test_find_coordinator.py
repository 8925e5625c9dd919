"""FindCoordinator, version by version: nobody coordinates yet."""

from __future__ import annotations

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, every_version

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, OTHER = 0, 1, 7


def codes(version: int, key_type: int, *keys: str) -> list[tuple[str, int]]:
    """Ask for keys and return each with the code of its answer; before version 4 there is one key."""
    body = FindCoordinatorRequest(key_type=key_type, key=keys[0])
    if version >= 4:
        body = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    response = SmallCluster().ask(Api.FIND_COORDINATOR, version, body)
    if version < 4:
        assert (response.node_id, response.host, response.port) == (-1, "", -1)
        return [(keys[0], response.error_code)]
    assert {(each.node_id, each.host, each.port) for each in response.coordinators} == {(-1, "", -1)}
    return [(each.key, each.error_code) for each in response.coordinators]


@pytest.mark.parametrize("version", every_version(Api.FIND_COORDINATOR))
def test_groups_have_no_coordinator(version: int) -> None:
    """Clients ask again later."""
    assert codes(version, GROUP, "group") == [("group", ErrorCode.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize("version", range(1, 7))
def test_transactional_producers_give_up_at_once(version: int) -> None:
    """With the code that they get for a producer id, too."""
    assert codes(version, TRANSACTION, "id") == [("id", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]


@pytest.mark.parametrize("version", range(4, 7))
def test_every_key_is_answered(version: int) -> None:
    """In the order in which they were asked for, and other kinds of keys as a mistake."""
    unavailable, invalid = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST
    assert codes(version, GROUP, "first", "second") == [("first", unavailable), ("second", unavailable)]
    assert codes(version, OTHER, "first") == [("first", invalid)]
