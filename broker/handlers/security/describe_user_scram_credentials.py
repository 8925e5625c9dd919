"""DescribeUserScramCredentials (50), version 0. Any broker answers.

Behavior: returns the mechanisms of each user with their iterations, never a key. Without a list, or with an empty one,
it returns all users that have a credential. RESOURCE_NOT_FOUND: a user without credentials. DUPLICATE_RESOURCE: a user
that is named twice; the response lists it once.

Version notes: there is one version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla.broker.cluster.znodes import DEFAULT_ENTITY
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.security.sasl.scram_credentials import credentials_in
from ottla.protocol.entity_names import desanitized, sanitized
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.protocol.scram import ScramMechanism


def describe_user_scram_credentials(request: SecurityRequest) -> DescribeUserScramCredentialsResponse:
    """Return the mechanisms for which users have credentials."""
    body: DescribeUserScramCredentialsRequest = request.body
    try:
        results = _named(request, Counter(user.name for user in body.users)) if body.users else _all(request)
        outcome = DONE
    except KafkaError as error:
        results, outcome = [], Outcome.refused(error)
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=outcome.code, error_message=outcome.message, results=results
    )


def _all(request: SecurityRequest) -> list[DescribeUserScramCredentialsResult]:
    configs = request.services.cluster.entity_configs("users")
    results = [_described(desanitized(name), config) for name, config in configs.items() if name != DEFAULT_ENTITY]
    return [result for result in results if result.credential_infos]


def _named(request: SecurityRequest, users: Mapping[str, int]) -> list[DescribeUserScramCredentialsResult]:
    results = []
    for user, count in users.items():
        if count > 1:
            results.append(_refused(user, ErrorCode.DUPLICATE_RESOURCE, "the user is named twice"))
            continue
        config = request.services.cluster.entity_config("users", sanitized(user)) if user else {}
        result = _described(user, config)
        results.append(
            result
            if result.credential_infos
            else _refused(user, ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credential")
        )
    return results


def _described(user: str, config: Mapping[str, str]) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.NONE,
        error_message=None,
        credential_infos=[
            CredentialInfo(mechanism=ScramMechanism.of(label), iterations=credential.iterations)
            for label, credential in credentials_in(config, user).items()
        ],
    )


def _refused(user: str, code: ErrorCode, detail: str) -> DescribeUserScramCredentialsResult:
    outcome = Outcome.of(code, detail)
    return DescribeUserScramCredentialsResult(
        user=user, error_code=outcome.code, error_message=outcome.message, credential_infos=[]
    )
