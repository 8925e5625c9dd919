"""The public keys that tokens are checked against: from a local file, or fetched from the issuer's endpoint.

A fetched set is kept in memory and refreshed by a thread of its own. If the issuer cannot be reached, the last set
stays in use, and the thread tries again with a growing pause. A token with an unknown key has the set refreshed early,
but rarely: anybody can make up keys. Such a token is refused meanwhile, because no client may make a worker wait.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import structlog

from ottla.broker.security.rarely import Rarely
from ottla.client.net.security.endpoint import EndpointError, check_url, fetch

log = structlog.get_logger(__name__)

# Only algorithms with a public key: with a shared key, everyone who can check tokens could also make them.
ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
_BYTES_MAX: Final = 1024 * 1024
_KEYS_MAX: Final = 1000
# How long the start waits for the first keys, and the time between two early refreshes.
_FIRST_SECONDS_MAX: Final = 10.0
_EARLY_SECONDS_MIN: Final = 10.0

KeySet = Mapping[str | None, Any]


class TokenKeysError(Exception):
    """The keys cannot be read, or the library that reads them is missing."""


class TokenKeys(Protocol):
    """Public keys by their ids."""

    def current(self) -> KeySet:
        """Return the keys, without waiting for the network."""

    def refresh_early(self) -> None:
        """Have the keys refreshed because one was not found; returns at once."""

    def start(self) -> None:
        """Get the keys, and keep them current."""

    def close(self) -> None:
        """Stop."""


def parsed_keys(text: bytes) -> KeySet:
    """Return the public keys in a JWK set that are for signatures; TokenKeysError if there is none."""
    try:
        import jwt
    except ImportError as error:
        raise TokenKeysError("OAUTHBEARER needs another package: pip install 'ottla[security]'") from error
    try:
        keys = jwt.PyJWKSet.from_json(text.decode()).keys
    except (ValueError, TypeError, AttributeError, RecursionError, jwt.PyJWTError) as error:
        raise TokenKeysError(f"{type(error).__name__}") from error
    public = {key.key_id: key for key in keys if key.key_type in ALGORITHMS and key.public_key_use in (None, "sig")}
    if not public:
        raise TokenKeysError("it has no key of type RSA, EC or OKP")
    if len(public) > _KEYS_MAX:
        raise TokenKeysError(f"it has more than {_KEYS_MAX} keys")
    return public


class FileKeys:
    """The keys in a local file, which is read again when it changes. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Read the file; TokenKeysError if that fails."""
        self._path = path
        self._lock = threading.Lock()
        self._stamp: object = None
        self._keys: KeySet = {}
        self._refresh(is_first=True)

    def current(self) -> KeySet:
        """Return the keys that are in the file now."""
        self._refresh()
        return self._keys

    def refresh_early(self) -> None:
        """Do nothing: the keys are those in the file."""

    def start(self) -> None:
        """Do nothing: the file is read when a token comes."""

    def close(self) -> None:
        """Do nothing."""

    def _refresh(self, *, is_first: bool = False) -> None:
        """Read the keys again if the file has changed; keep the old ones if that fails."""
        with self._lock:
            try:
                found = os.stat(self._path)
                stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
                if stamp == self._stamp:
                    return
                self._stamp = stamp
                if found.st_size > _BYTES_MAX:
                    raise TokenKeysError("it is too large")
                self._keys = parsed_keys(self._path.read_bytes())
            except (OSError, TokenKeysError) as error:
                if is_first:
                    raise TokenKeysError(f"{self._path} is not a set of public keys: {error}") from error
                log.error("token_keys_not_reloaded", path=str(self._path), error=str(error))


class EndpointKeys:
    """The keys that an issuer publishes. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        refresh_ms: int,
        retry_ms: int,
        retry_max_ms: int,
        cafile: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is fetched before `start`; TokenKeysError if the URL must not be requested."""
        try:
            check_url(url)
        except ValueError as error:
            raise TokenKeysError(str(error)) from error
        self._url = url
        self._cafile = cafile
        self._refresh_seconds = refresh_ms / 1000
        self._retry_seconds = retry_ms / 1000
        self._retry_seconds_max = max(retry_max_ms, retry_ms) / 1000
        self._monotonic = monotonic
        self._rarely = Rarely()
        self._keys: KeySet = {}
        self._early_after = float("-inf")
        self._lock = threading.Lock()
        # Ends the pause of the thread.
        self._wake = threading.Event()
        self._was_tried = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="token-keys", daemon=True)

    def current(self) -> KeySet:
        """Return the keys that were fetched last."""
        return self._keys

    def refresh_early(self) -> None:
        """Wake the thread, unless it was woken a moment ago."""
        with self._lock:
            now = self._monotonic()
            if now < self._early_after:
                return
            self._early_after = now + _EARLY_SECONDS_MIN
        self._wake.set()

    def start(self) -> None:
        """Fetch the keys, and refresh them from then on. If the issuer does not answer, continue without keys."""
        if not self._thread.is_alive() and not self._is_closed:
            self._thread.start()
            self._was_tried.wait(_FIRST_SECONDS_MAX)

    def close(self) -> None:
        """Stop refreshing; a fetch that is under way ends by itself."""
        self._is_closed = True
        self._wake.set()

    def _run(self) -> None:
        retry_seconds = self._retry_seconds
        while not self._is_closed:
            self._wake.clear()
            try:
                self._keys = parsed_keys(fetch(self._url, bytes_max=_BYTES_MAX, cafile=self._cafile))
            except (EndpointError, TokenKeysError) as error:
                if self._rarely.allows(str(error)):
                    log.error("token_keys_not_fetched", url=self._url, error=str(error), keys_in_use=len(self._keys))
                pause, retry_seconds = retry_seconds, min(retry_seconds * 2, self._retry_seconds_max)
            else:
                log.debug("token_keys_fetched", url=self._url, keys=len(self._keys))
                pause, retry_seconds = self._refresh_seconds, self._retry_seconds
            self._was_tried.set()
            if not self._is_closed:
                self._wake.wait(pause)


def local_path(location: str) -> Path | None:
    """Return the path in a setting; None if it is the URL of an endpoint; TokenKeysError if it is neither."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path) if parts.scheme else location)
    if parts.scheme in ("https", "http"):
        return None
    raise TokenKeysError(
        "sasl.oauthbearer.jwks.endpoint.url must be like https://issuer.example.org/keys, or a local file: "
        "file:///etc/ottla/jwks.json"
    )
