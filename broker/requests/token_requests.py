"""What the four APIs about delegation tokens share."""

from __future__ import annotations

from ottla.broker.requests.request import SecurityRequest
from ottla.broker.security.session import ANONYMOUS
from ottla.broker.security.tokens.delegation_tokens import DelegationTokens
from ottla.protocol.errors import ErrorCode, KafkaError


def delegation_tokens(request: SecurityRequest) -> DelegationTokens:
    """Return the tokens, for a client that may ask about tokens at all; otherwise raise KafkaError.

    A client must be authenticated, and not by a token: nobody can prolong a login with tokens of tokens.
    """
    session = request.session
    is_known = session.authentication is not None or session.principal != ANONYMOUS
    if session.by_token or not is_known:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return request.services.security.tokens
