"""The delegation tokens of the cluster: in ZooKeeper, and in the memory of every broker.

Any broker creates, renews and ends tokens. It writes the node, adds a note for the other brokers, and waits until it
has read the change back itself. The controller deletes expired tokens. Without `delegation.token.secret.key` there are
no tokens, and all requests about them are refused.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from ottla.broker.cluster.change_notes import ChangeNotes, add_note
from ottla.broker.cluster.cluster_registry import translated_errors
from ottla.broker.cluster.note_follower import NoteFollower
from ottla.broker.cluster.operations import BadVersionError, NodeExistsError, NoNodeError, ZNode
from ottla.broker.cluster.znodes import MalformedNodeError
from ottla.broker.common.clocks import wall_clock_ms
from ottla.broker.security.sasl.scram import TokenLogin
from ottla.broker.security.tokens.delegation_token import (
    TOKEN_CHANGE_PREFIX,
    TOKEN_CHANGES,
    TOKENS,
    DelegationToken,
    TokenKey,
    TokenNode,
    principal_parts,
    token_path,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.scram import ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from ottla.broker.cluster.zookeeper import ZooKeeper
    from ottla.broker.config import BrokerConfig

log = structlog.get_logger(__name__)

_ATTEMPTS_MAX: Final = 20
_TOKEN_ID_MAX: Final = 64
# All brokers keep all tokens in memory, and every user may create some.
_TOKENS_PER_OWNER_MAX: Final = 1000
_TOKENS_MAX: Final = 100_000
_NODE_BYTES_MAX: Final = 64 * 1024


class DelegationTokens:
    """The tokens that this broker knows. Any thread may ask; worker threads may change tokens."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        config: BrokerConfig,
        *,
        is_controller: Callable[[], bool] = lambda: False,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`clock` returns milliseconds since 1970."""
        self._zookeeper = zookeeper
        self._is_controller = is_controller
        self._clock = clock
        secret = config.delegation_token_secret_key or config.delegation_token_master_key
        self._key = None if secret is None else TokenKey(secret.value)
        self._lifetime_max_ms = config.delegation_token_max_lifetime_ms
        self._renewal_ms = config.delegation_token_expiry_time_ms
        self._check_seconds = config.delegation_token_expiry_check_interval_ms / 1000
        notes = {TOKEN_CHANGES: ChangeNotes(zookeeper, TOKEN_CHANGES, TOKEN_CHANGE_PREFIX, clock)}
        self._follower = NoteFollower(zookeeper, notes, self._read_all, self._read_noted, name="token-changes")
        # By id. Only the follower's thread changes these two, and `start` before that thread runs.
        self._tokens: dict[str, DelegationToken] = {}
        self._ids_by_hmac: dict[bytes, str] = {}
        # Derived at the first login with a token, because that takes milliseconds; dropped with the token.
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._is_closed = threading.Event()
        self._expiry = threading.Thread(target=self._expire_regularly, name="token-expiry", daemon=True)

    @property
    def is_enabled(self) -> bool:
        """Whether there is a secret key."""
        return self._key is not None

    def __iter__(self) -> Iterator[DelegationToken]:
        """Iterate over all tokens, also those that have expired and are not deleted yet."""
        return iter(list(self._tokens.values()))

    # Life cycle

    def start(self) -> None:
        """Read all tokens, and follow changes from then on; raise a ZooKeeperError if that fails."""
        if self._key is None:
            return
        for path in (TOKENS, TOKEN_CHANGES):
            self._zookeeper.ensure_path(path)
        self._follower.start()
        self._expiry.start()

    def session_renewed(self) -> None:
        """Watch again, and read what was missed."""
        if self._key is not None:
            self._follower.session_renewed()

    def close(self) -> None:
        """Stop following changes."""
        self._is_closed.set()
        if self._expiry.is_alive():
            self._expiry.join(timeout=60)
        self._follower.close()

    # Logins

    def login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """Return what a login with a token is checked against; None if there is no such token."""
        token = self._tokens.get(token_id) if len(token_id) <= _TOKEN_ID_MAX else None
        if token is None or self._key is None:
            return None
        name = (mechanism, token_id)
        credential = self._credentials.get(name)
        if credential is None:
            credential = self._key.credential(ScramMechanism.of(mechanism), token_id)
            self._credentials[name] = credential
            if token_id not in self._tokens:
                self._credentials.pop(name, None)
        return TokenLogin(principal_parts(token.owner)[1], credential, token.expiry_ms)

    # Changes; all raise KafkaError

    def create(self, owner: str, requester: str, renewers: Iterable[str], lifetime_ms: int) -> DelegationToken:
        """Create a token that can live for so long, or for the longest time allowed if that is not positive."""
        key, now = self._required_key(), self._clock()
        token_id = _new_id()
        lifetime_ms = min(lifetime_ms, self._lifetime_max_ms) if lifetime_ms > 0 else self._lifetime_max_ms
        token = DelegationToken(
            token_id=token_id,
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issued_ms=now,
            max_ms=now + lifetime_ms,
            expiry_ms=now + min(lifetime_ms, self._renewal_ms),
            hmac=key.hmac_of(token_id),
        )
        content = TokenNode.of(token).encode()
        if len(content) > _NODE_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the token has too many renewers")
        if len(self._tokens) >= _TOKENS_MAX or sum(each.owner == owner for each in self) >= _TOKENS_PER_OWNER_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"a user may have {_TOKENS_PER_OWNER_MAX} tokens, and all together {_TOKENS_MAX}: "
                "end some of them first",
            )
        with translated_errors():
            # Ids are never used twice: a node that exists is ours, written before the connection was lost.
            with suppress(NodeExistsError):
                self._zookeeper.create(token_path(token_id), content)
            self._changed(token_id)
        return token

    def renew(self, principal: str, token_hmac: bytes, period_ms: int) -> DelegationToken:
        """Move the expiry of a token to so long from now; by default if that is negative. Return it as it is then."""

        def renewed(token: DelegationToken) -> DelegationToken:
            now = self._clock()
            if token.is_expired(now):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return token.expiring_at(now + (period_ms if period_ms >= 0 else self._renewal_ms))

        return self._change(principal, token_hmac, renewed)

    def expire(self, principal: str, token_hmac: bytes, period_ms: int) -> DelegationToken:
        """Have a token expire so long from now, or delete it if that is negative; return it with its end."""

        def expiring(token: DelegationToken) -> DelegationToken | None:
            now = self._clock()
            if period_ms < 0:
                return None
            if token.is_expired(now):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return token.expiring_at(now + period_ms)

        token = self._change(principal, token_hmac, expiring)
        return token.expiring_at(self._clock()) if period_ms < 0 else token

    def delete_expired(self) -> None:
        """Delete all tokens that have expired."""
        now = self._clock()
        for token in self:
            if not token.is_expired(now):
                continue
            try:
                self._update(token.token_id, lambda current: None if current.is_expired(now) else current)
            except KafkaError as error:
                if error.code is not ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
                    raise
                # Somebody else has deleted it.
                self._follower.read_back(partial(self._read, [token.token_id]))

    def _change(
        self, principal: str, token_hmac: bytes, change: Callable[[DelegationToken], DelegationToken | None]
    ) -> DelegationToken:
        self._required_key()
        token_id = self._ids_by_hmac.get(token_hmac)
        if token_id is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

        def allowed(token: DelegationToken) -> DelegationToken | None:
            if not token.may_be_renewed_by(principal):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            return change(token)

        return self._update(token_id, allowed)

    def _update(self, token_id: str, change: Callable[[DelegationToken], DelegationToken | None]) -> DelegationToken:
        """Replace a token by what `change` returns, or delete it; return it as it is then, or was."""
        path, key = token_path(token_id), self._required_key()
        with translated_errors():
            for _ in range(_ATTEMPTS_MAX):
                node = self._zookeeper.read_or_none(path)
                if node is None:
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
                current = TokenNode.decode(node.data, path).token(key, path)
                wanted = change(current)
                try:
                    if wanted is None:
                        self._zookeeper.delete(path, node.stat.version)
                    elif wanted != current:
                        self._zookeeper.write(path, TokenNode.of(wanted).encode(), node.stat.version)
                except (BadVersionError, NoNodeError):
                    continue
                self._changed(token_id)
                return current if wanted is None else wanted
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the token keeps being changed by others")

    def _changed(self, token_id: str) -> None:
        add_note(self._zookeeper, TOKEN_CHANGES, TOKEN_CHANGE_PREFIX, token_id.encode())
        self._follower.read_back(lambda: self._read([token_id]))

    def _required_key(self) -> TokenKey:
        if self._key is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "set delegation.token.secret.key on all brokers")
        return self._key

    # Reading, on the follower's thread

    def _read_all(self) -> None:
        listed = self._zookeeper.children(TOKENS)
        self._forget(self._tokens.keys() - set(listed))
        self._read(listed)
        log.info("delegation_tokens_read", tokens=len(self._tokens))

    def _read_noted(self, _parent: str, notes: Mapping[str, bytes]) -> None:
        names = {data.decode("utf-8", "replace") for data in notes.values()}
        self._read([name for name in names if _is_token_id(name)])

    def _read(self, token_ids: list[str]) -> None:
        nodes = self._zookeeper.read_many([token_path(token_id) for token_id in token_ids])
        for token_id, node in zip(token_ids, nodes, strict=True):
            token = self._decoded(token_id, node)
            if token is None:
                self._forget([token_id])
            else:
                self._tokens[token_id] = token
                self._ids_by_hmac[token.hmac] = token_id

    def _decoded(self, token_id: str, node: ZNode | None) -> DelegationToken | None:
        if node is None or not node.data or self._key is None:
            return None
        path = token_path(token_id)
        try:
            return TokenNode.decode(node.data, path).token(self._key, path)
        except MalformedNodeError as error:
            log.error("delegation_token_not_readable", reason=str(error))
            return None

    def _forget(self, token_ids: Iterable[str]) -> None:
        for token_id in token_ids:
            token = self._tokens.pop(token_id, None)
            if token is not None:
                self._ids_by_hmac.pop(token.hmac, None)
                for mechanism in ScramMechanism:
                    self._credentials.pop((mechanism.label, token_id), None)

    # Expiry, on a thread of its own

    def _expire_regularly(self) -> None:
        while not self._is_closed.wait(self._check_seconds):
            if not self._is_controller():
                continue
            try:
                self.delete_expired()
            except KafkaError as error:
                # ZooKeeper is away, for example; the next round tries again.
                log.warning("delegation_tokens_not_expired", reason=str(error))


def _new_id() -> str:
    """Return an id as Kafka makes them, except that none starts like an option of a command."""
    while True:
        token_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not token_id.startswith("-"):
            return token_id


def _is_token_id(name: str) -> bool:
    return bool(name) and len(name) <= _TOKEN_ID_MAX and name.isprintable() and "/" not in name and name[0] != "."
