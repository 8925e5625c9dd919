"""Who is at the other end of a connection."""

from __future__ import annotations

import pytest

from ottla.broker.security.session import plain_address


@pytest.mark.parametrize(
    ("seen", "written"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("::ffff:a:b", "::ffff:a:b"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_an_address_is_the_same_on_every_kind_of_socket(seen: str, written: str) -> None:
    """A rule against an IPv4 address holds where the listener speaks IPv6 too."""
    assert plain_address(seen) == written
