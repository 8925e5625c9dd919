"""Which version is spoken with a broker."""

from __future__ import annotations

import pytest

from ottla.client.net.api_versions import common_version, supported_versions
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse


class Broker:
    """Stands for a connection: answers with what the test gives."""

    host, port = "there", 9092

    def __init__(self, response: ApiVersionsResponse) -> None:
        self._response = response

    def request(self, api: Api, version: int, message: Message) -> ApiVersionsResponse:
        """Answer, if it is asked in the version that every broker knows."""
        assert (api, version) == (Api.API_VERSIONS, 0)
        return self._response


@pytest.mark.parametrize(
    ("theirs", "at_most", "expected"),
    [((4, 99), 99, 17), ((4, 11), 99, 11), ((4, 17), 12, 12), ((0, 3), 99, 3)],
)
def test_the_newest_version_that_both_know_is_taken(theirs: tuple[int, int], at_most: int, expected: int) -> None:
    """Or an older one, where the caller wants that."""
    assert common_version(Api.FETCH, {Api.FETCH: Versions(*theirs)}, at_most) == expected


@pytest.mark.parametrize("supported", [{}, {Api.FETCH: Versions(90, 99)}], ids=["unknown", "too new"])
def test_without_a_common_version_there_is_an_error(supported: dict[int, Versions]) -> None:
    """It is typed."""
    with pytest.raises(KafkaError) as caught:
        common_version(Api.FETCH, supported)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_broker_tells_what_it_speaks() -> None:
    """By the keys of the APIs."""
    broker = Broker(ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=1, min_version=4, max_version=17)]))
    assert supported_versions(broker) == {Api.FETCH: Versions(4, 17)}  # type: ignore[arg-type]


def test_a_broker_that_refuses_to_tell_is_an_error() -> None:
    """With the code that it gave."""
    broker = Broker(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[]))
    with pytest.raises(KafkaError) as caught:
        supported_versions(broker)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
