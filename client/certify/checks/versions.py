"""Every version that is offered is served, and a version that is not offered is refused as clients expect."""

from __future__ import annotations

import struct
from typing import Final

from ottla.client.certify.check import Check, CheckFailed, Checks, NotApplicable, expect, expect_error, expect_that
from ottla.client.certify.harmless import BETWEEN_BROKERS, harmless_request, has_request
from ottla.client.certify.trial import Trial
from ottla.client.errors import KafkaConnectionError
from ottla.protocol.api import Api
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.message import Versions
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.plain_values import error_codes
from ottla.protocol.requests import encode_request

CHECKS: Final = Checks("versions", "APIs and their versions")

_ANSWER_SECONDS_MAX: Final = 10.0
_UNKNOWN_VERSION: Final = 99
_CORRELATION_ID: Final = 4711
# Listed for old clients of librdkafka, and refused since Kafka 4.0 (KIP-896).
_LISTED_BUT_REFUSED: Final = {Api.PRODUCE: Versions(0, 2)}
# They have done their work when a connection is open, and begin another login where the broker asks for that.
_OF_LOGINS: Final = (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
# What clients of today cannot do without, each with a version that all of them know.
_ESSENTIAL: Final = {
    Api.PRODUCE: 7,
    Api.FETCH: 11,
    Api.LIST_OFFSETS: 3,
    Api.METADATA: 5,
    Api.OFFSET_COMMIT: 3,
    Api.OFFSET_FETCH: 3,
    Api.FIND_COORDINATOR: 1,
    Api.JOIN_GROUP: 5,
    Api.HEARTBEAT: 1,
    Api.LEAVE_GROUP: 1,
    Api.SYNC_GROUP: 3,
    Api.API_VERSIONS: 0,
    Api.CREATE_TOPICS: 3,
    Api.DELETE_TOPICS: 1,
    Api.INIT_PRODUCER_ID: 1,
}


@CHECKS.check()
async def essentials(trial: Trial) -> None:
    """The versions of Produce, Fetch, Metadata and groups that all clients of today know are offered."""
    connection = await trial.client.connection(trial.any_broker)
    missing = [
        f"{api.label} {version}"
        for api, version in _ESSENTIAL.items()
        if version not in connection.versions.get(api, Versions(1, 0))
    ]
    expect_that(not missing, "the versions that clients need", f"missing: {', '.join(missing)}")


@CHECKS.check()
async def ranges(trial: Trial) -> None:
    """ApiVersions lists each API once, with a lowest version that is not above the highest."""
    response = await trial.ask(Api.API_VERSIONS, ApiVersionsRequest(), version=0)
    keys = [row.api_key for row in response.api_keys]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    expect("APIs that are listed twice", twice, [])
    wrong = [row.api_key for row in response.api_keys if not 0 <= row.min_version <= row.max_version]
    expect("APIs with an impossible range", wrong, [])


@CHECKS.check()
async def same_in_all_versions(trial: Trial) -> None:
    """ApiVersions lists the same ranges in version 0 and in the newest version."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
    oldest = await trial.ask(Api.API_VERSIONS, request, version=0)
    newest = await trial.ask(Api.API_VERSIONS, request, version=trial.version(Api.API_VERSIONS))

    def ranges_of(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
        return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    first, last = ranges_of(oldest), ranges_of(newest)
    different = sorted(key for key in {*first, *last} if first.get(key) != last.get(key))
    expect("APIs with different ranges", different, [])


@CHECKS.check()
async def unknown_version_of_api_versions(trial: Trial) -> None:
    """ApiVersions in an unknown version is answered in version 0, with UNSUPPORTED_VERSION and the range to use."""
    probe = await trial.probe()
    header = struct.pack(">hhih", Api.API_VERSIONS, _UNKNOWN_VERSION, _CORRELATION_ID, -1)
    probe.send_frame(header + b"\x00")
    answer = await probe.answer(_ANSWER_SECONDS_MAX)
    if answer is None:
        raise CheckFailed("an answer in version 0", "the broker closed the connection")
    expect("the correlation id", struct.unpack_from(">i", answer)[0], _CORRELATION_ID)
    try:
        response = decode(ApiVersionsResponse, 0, answer[4:])
    except ProtocolError as error:
        raise CheckFailed("an answer in version 0", f"other bytes: {error}") from error
    expect_error(f"ApiVersions {_UNKNOWN_VERSION}", response.error_code, ErrorCode.UNSUPPORTED_VERSION)
    own = [row for row in response.api_keys if row.api_key == Api.API_VERSIONS]
    expect_that(len(own) == 1, "the range of ApiVersions in the answer", f"{len(own)} rows for it")


@CHECKS.check({Api.API_VERSIONS: 3})
async def malformed_client_name(trial: Trial) -> None:
    """A name of the client's software that is not well formed is INVALID_REQUEST, and the connection stays open."""
    probe = await trial.probe()
    for name, code in (("@", ErrorCode.INVALID_REQUEST), ("ottla", ErrorCode.NONE)):
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        probe.send_frame(b"".join(encode_request(Api.API_VERSIONS, 3, _CORRELATION_ID, None, request)))
        answer = await probe.answer(_ANSWER_SECONDS_MAX)
        if answer is None:
            raise CheckFailed("an answer", f"the broker closed the connection after the name {name!r}")
        expect_error(f"the name {name!r}", decode(ApiVersionsResponse, 3, answer[4:]).error_code, code)


async def _every_version(trial: Trial, api: Api) -> None:
    if api in _OF_LOGINS and trial.settings.uses_sasl:
        raise NotApplicable("the connection is logged in; every connection of this run has used it")
    connection = await trial.client.connection(trial.any_broker)
    offered = connection.versions[api]
    topic = await trial.topic()
    known = range(max(offered.first, api.versions.first), min(offered.last, api.versions.last) + 1)
    for version in known:
        request = harmless_request(api, version, topic, trial.name("nothing"))
        node = await trial.leader(topic)
        try:
            response = await trial.client.send(
                node, api, request, version_min=version, version_max=version, lane=f"version {version}"
            )
        except KafkaConnectionError as error:
            if version in _LISTED_BUT_REFUSED.get(api, Versions(1, 0)):
                continue
            raise CheckFailed(f"a well-formed answer to {api.label} {version}", error.detail) from error
        unknown = [code for code in error_codes(response) if code and ErrorCode.of(code) != code]
        expect(f"unknown error codes in the answer to {api.label} {version}", unknown, [])


def _declare(api: Api) -> None:
    async def run(trial: Trial) -> None:
        await _every_version(trial, api)

    holds = f"Every version of {api.label} that is offered and known here gets a well-formed answer."
    CHECKS.add(Check(CHECKS.subject, api.label, holds, run, {api: api.versions.first}))


for _api in Api:
    if _api not in BETWEEN_BROKERS and has_request(_api):
        _declare(_api)
