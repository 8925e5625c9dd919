"""The SASL mechanisms of one listener, and the users and keys that they check against."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from ottla.broker.config.layers import ConfigError, Problem
from ottla.broker.config.rows.broker import BrokerOptions
from ottla.broker.security.audit.audit import Audit, AuditSubject
from ottla.broker.security.rarely import Rarely
from ottla.broker.security.sasl.authentication import Authentication
from ottla.broker.security.sasl.oauth_bearer import TokenRules, TokenVerifier, oauth_bearer
from ottla.broker.security.sasl.plain import plain
from ottla.broker.security.sasl.sasl_exchange import SaslExchange
from ottla.broker.security.sasl.scram import scram
from ottla.broker.security.sasl.token_keys import EndpointKeys, FileKeys, TokenKeys, TokenKeysError, local_path
from ottla.client.net.security.jaas import JaasError, JaasLogin, parse_login

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig
    from ottla.broker.security.sasl.scram_credentials import ScramCredentials
    from ottla.broker.security.session import Session
    from ottla.broker.security.tokens.delegation_tokens import DelegationTokens

log = structlog.get_logger(__name__)

# The largest request of a client that is not authenticated.
_FRAME_BYTES_MAX: Final = 64 * 1024


class SaslListener:
    """What the authentications at one listener share. Thread-safe."""

    def __init__(
        self,
        name: str,
        config: Callable[[], BrokerConfig],
        credentials: ScramCredentials,
        tokens: DelegationTokens | None = None,
        audit: Audit | None = None,
    ) -> None:
        """Read the logins and keys of the listener; ConfigError if they are missing or unreadable."""
        self.name = name
        self._config = config
        self._credentials = credentials
        self._tokens = tokens
        self._audit = audit or Audit()
        self._rarely = Rarely()
        self._counting = threading.Lock()
        self.successes = 0
        self.failures = 0
        self._logins: dict[str, JaasLogin | None] = {}
        self._verifier: TokenVerifier | None = None
        # The keys of its tokens. Their options do not change while the broker runs.
        self._token_keys: TokenKeys | None = None
        self.configure()

    def __repr__(self) -> str:
        return f"<SaslListener {self.name} {self.mechanisms}>"

    @property
    def frame_bytes_max(self) -> int:
        """The largest request that a client may send before it is authenticated."""
        return min(self._config().for_listener(self.name, BrokerOptions.sasl_server_max_receive_size), _FRAME_BYTES_MAX)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that clients may choose from."""
        return tuple(self._logins)

    def configure(self) -> None:
        """Apply the current options; if they are invalid, raise ConfigError and change nothing."""
        config = self._config()
        mechanisms = config.for_listener(self.name, BrokerOptions.sasl_enabled_mechanisms)
        logins = {mechanism: self._login(config, mechanism) for mechanism in mechanisms}
        verifier = self._token_verifier(config) if "OAUTHBEARER" in mechanisms else None
        self._logins, self._verifier = logins, verifier

    def _login(self, config: BrokerConfig, mechanism: str) -> JaasLogin | None:
        text = config.for_listener(self.name, BrokerOptions.sasl_jaas_config, mechanism)
        if text is None:
            if mechanism == "PLAIN":
                raise _wrong(self.name, mechanism, "PLAIN has no users: name them as user_NAME=PASSWORD")
            return None
        try:
            login = parse_login(text.value)
        except JaasError as error:
            raise _wrong(self.name, mechanism, str(error)) from error
        if mechanism in login.mechanisms:
            return login
        # A login for all mechanisms may belong to another one; only PLAIN has its users there.
        if mechanism == "PLAIN":
            raise _wrong(self.name, mechanism, "the login module is not for PLAIN")
        return None

    def start(self) -> None:
        """Fetch the keys of tokens, if they come from an endpoint."""
        if self._token_keys is not None:
            self._token_keys.start()

    def close(self) -> None:
        """Stop refreshing keys."""
        if self._token_keys is not None:
            self._token_keys.close()

    def _keys(self, config: BrokerConfig) -> TokenKeys:
        location = config.for_listener(self.name, BrokerOptions.sasl_oauthbearer_jwks_endpoint_url)
        if location is None:
            raise TokenKeysError("OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, where the public keys are")
        path = local_path(location)
        if path is not None:
            return FileKeys(path)
        return EndpointKeys(
            location,
            refresh_ms=config.for_listener(self.name, BrokerOptions.sasl_oauthbearer_jwks_endpoint_refresh_ms),
            retry_ms=config.for_listener(self.name, BrokerOptions.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms),
            retry_max_ms=config.for_listener(
                self.name, BrokerOptions.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms
            ),
            cafile=config.for_listener(self.name, BrokerOptions.ottla_sasl_oauthbearer_cafile),
        )

    def _token_verifier(self, config: BrokerConfig) -> TokenVerifier:
        try:
            if self._token_keys is None:
                self._token_keys = self._keys(config)
            rules = TokenRules(
                issuer=config.for_listener(self.name, BrokerOptions.sasl_oauthbearer_expected_issuer),
                audience=config.for_listener(self.name, BrokerOptions.sasl_oauthbearer_expected_audience) or None,
                clock_skew_seconds=config.for_listener(self.name, BrokerOptions.sasl_oauthbearer_clock_skew_seconds),
                subject_claim=config.for_listener(self.name, BrokerOptions.sasl_oauthbearer_sub_claim_name),
                scope_claim=config.for_listener(self.name, BrokerOptions.sasl_oauthbearer_scope_claim_name),
            )
            return TokenVerifier(self._token_keys, rules)
        except TokenKeysError as error:
            name = BrokerOptions.sasl_oauthbearer_jwks_endpoint_url.name
            raise ConfigError([Problem((name,), f"listener {self.name}: {error}")]) from error

    def authentication(self, session: Session) -> Authentication:
        """Start the authentication of a new connection."""
        return Authentication(self, session)

    def exchange(self, mechanism: str) -> SaslExchange:
        """Start an exchange with one of the mechanisms."""
        if mechanism == "PLAIN":
            login = self._logins.get(mechanism)
            return plain(login.users if login is not None else {})
        if mechanism == "OAUTHBEARER":
            assert self._verifier is not None
            return oauth_bearer(self._verifier, self._token_refused)
        credentials, tokens = self._credentials, self._tokens
        return scram(
            mechanism,
            lambda user: credentials.get(mechanism, user),
            credentials.secret,
            style=credentials.style(mechanism),
            token_login=None if tokens is None else lambda token_id: tokens.login(mechanism, token_id),
        )

    def max_reauth_ms(self) -> int:
        """How long an authentication lasts, in milliseconds; 0 is for ever."""
        return self._config().for_listener(self.name, BrokerOptions.connections_max_reauth_ms)

    def succeeded(self, subject: AuditSubject, mechanism: str) -> None:
        """Count and note an authentication."""
        with self._counting:
            self.successes += 1
        self._audit.login(subject, mechanism, by_token=subject.session.by_token)

    def failed(self, subject: AuditSubject, mechanism: str, reason: str) -> None:
        """Count and note a failed authentication."""
        with self._counting:
            self.failures += 1
        self._audit.login_failed(subject, mechanism, reason)

    def _token_refused(self, reason: str) -> None:
        # Log it at once: not every client continues to the end, where the authentication fails.
        if self._rarely.allows(f"token {reason}"):
            log.warning("token_refused", listener=self.name, reason=reason)


def _wrong(listener: str, mechanism: str, reason: str) -> ConfigError:
    name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{BrokerOptions.sasl_jaas_config.name}"
    return ConfigError([Problem((name,), f"{name}: {reason}")])
