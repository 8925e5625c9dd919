"""An issuer of tokens for OAUTHBEARER: a real HTTP server on the loopback interface.

with TokenIssuer() as issuer:
    issuer.keys_url        what brokers fetch keys from
    issuer.token_url       where clients get tokens, as `CLIENT_ID` with `CLIENT_SECRET`
    issuer.answer = ...    have it answer all requests in another way
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

CLIENT_ID: Final = "service"
CLIENT_SECRET: Final = "planted-client-secret-07be"
LIFETIME_S: Final = 600


@dataclass(frozen=True)
class HttpAnswer:
    """A response to send."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def _headers(body: bytes) -> dict[str, str]:
    # librdkafka reads no answer without the type.
    return {"Content-Length": str(len(body)), "Content-Type": "application/json"}


class TokenIssuer:
    """Signs tokens, and serves the public key; a `with` starts and stops it."""

    def __init__(self) -> None:
        self.rotate("first")
        # What was requested: paths, and forms of the token endpoint.
        self.requests: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        # Replaces all answers.
        self.answer: Callable[[str], HttpAnswer] | None = None
        self.lifetime_s = LIFETIME_S
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(issuer._answered(self.path, "", b""))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._send(issuer._answered(self.path, self.headers.get("Authorization", ""), body))

            def _send(self, answer: HttpAnswer) -> None:
                self.send_response(answer.status)
                for name, value in {**_headers(answer.body), **answer.headers}.items():
                    self.send_header(name, value)
                # A client that has had enough hangs up.
                with suppress(ConnectionError):
                    self.end_headers()
                    self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def keys_url(self) -> str:
        """Where the public keys are."""
        return f"{self.url}/keys"

    @property
    def token_url(self) -> str:
        """Where tokens are."""
        return f"{self.url}/token"

    def rotate(self, key_id: str) -> None:
        """Sign with a new key, and publish it alone."""
        self._key, self.key_id = ec.generate_private_key(ec.SECP256R1()), key_id
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        self.keys = json.dumps({"keys": [{**public, "kid": key_id, "use": "sig", "alg": "ES256"}]})

    def token(self, subject: str = CLIENT_ID, **changes: Any) -> str:
        """Sign a token."""
        claims = {"sub": subject, "iss": self.url, "exp": int(time.time()) + self.lifetime_s, **changes}
        return jwt.encode(claims, self._key, "ES256", headers={"kid": self.key_id})

    def _answered(self, path: str, authorization: str, body: bytes) -> HttpAnswer:
        self.requests.append(path)
        if self.answer is not None:
            return self.answer(path)
        if path == "/keys":
            return HttpAnswer(200, self.keys.encode())
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        form = parse_qs(body.decode())
        self.forms.append(form)
        if authorization != f"Basic {expected}" or form.get("grant_type") != ["client_credentials"]:
            return HttpAnswer(401, b'{"error":"invalid_client"}')
        answer = {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.lifetime_s}
        return HttpAnswer(200, json.dumps(answer).encode())
