"""AlterUserScramCredentials (51), version 0. For the controller; others answer NOT_CONTROLLER for each user.

Behavior: sets or deletes the credentials of users, by mechanism. The client salts the password, so the password itself
is never sent; the broker stores keys derived from it. All changes of one user are made at once or not at all, and have
one result. UNACCEPTABLE_CREDENTIAL: no name, no salt, no password, fewer than 4096 or more than 16384 iterations.
UNSUPPORTED_SASL_MECHANISM: neither SCRAM-SHA-256 nor SCRAM-SHA-512. DUPLICATE_RESOURCE: a mechanism of a user is named
twice. RESOURCE_NOT_FOUND: a credential to delete does not exist.

Version notes: there is one version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.broker.requests.access import CLUSTER, check
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import SecurityRequest
from ottla.protocol.entity_names import sanitized
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, ScramMechanism

_Alteration = ScramCredentialUpsertion | ScramCredentialDeletion


def alter_user_scram_credentials(request: SecurityRequest) -> AlterUserScramCredentialsResponse:
    """Change the credentials of users."""
    body: AlterUserScramCredentialsRequest = request.body
    by_user: dict[str, list[_Alteration]] = {}
    alterations: list[_Alteration] = [*body.upsertions, *body.deletions]
    for alteration in alterations:
        by_user.setdefault(alteration.name, []).append(alteration)
    try:
        if not request.services.cluster.is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        check(request, CLUSTER)
        outcomes = {user: _alter(request, user, by_user[user]) for user in by_user}
    except KafkaError as error:
        outcomes = dict.fromkeys(by_user, Outcome.refused(error))
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0, results=[_result(user, outcome) for user, outcome in outcomes.items()]
    )


def _alter(request: SecurityRequest, user: str, alterations: Sequence[_Alteration]) -> Outcome:
    cluster = request.services.cluster
    try:
        for alteration in alterations:
            _check(alteration)
        if len({alteration.mechanism for alteration in alterations}) < len(alterations):
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "a credential is changed twice in one request")
        changes = {ScramMechanism(each.mechanism).label: _stored(each) for each in alterations}
        cluster.change_entity_config("users", sanitized(user), lambda config: _changed(config, changes))
    except KafkaError as error:
        return Outcome.refused(error)
    change = {mechanism: "deleted" if text is None else "set" for mechanism, text in changes.items()}
    note_change(request, "user_altered", f"User:{user}", change)
    return DONE


def _check(alteration: _Alteration) -> None:
    if not alteration.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the name of the user is empty")
    if alteration.mechanism not in ScramMechanism.__members__.values():
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {alteration.mechanism}")
    if isinstance(alteration, ScramCredentialDeletion):
        return
    if not ITERATIONS_MIN <= alteration.iterations <= ITERATIONS_MAX:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{alteration.iterations} iterations: must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}",
        )
    if not alteration.salt or not alteration.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or the salted password is empty")


def _stored(alteration: _Alteration) -> str | None:
    """Return the text to store; None to delete the credential."""
    if isinstance(alteration, ScramCredentialDeletion):
        return None
    return ScramCredential.derived(
        ScramMechanism(alteration.mechanism),
        bytes(alteration.salted_password),
        bytes(alteration.salt),
        alteration.iterations,
    ).format()


def _changed(config: Mapping[str, str], changes: Mapping[str, str | None]) -> Mapping[str, str]:
    changed = dict(config)
    for mechanism, text in changes.items():
        if text is not None:
            changed[mechanism] = text
        elif changed.pop(mechanism, None) is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"the user has no credential for {mechanism}")
    return changed


def _result(user: str, outcome: Outcome) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=outcome.code, error_message=outcome.message)
