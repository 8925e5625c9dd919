"""Logins as Kafka's options write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.net.security.jaas import JaasError, parse_login

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_login_has_a_name_a_password_and_users() -> None:
    """Over several lines, quoted or not, with signs of all kinds between quotes."""
    login = parse_login(
        f"""{PLAIN} required
          username="admin"
          password="a;b=c \\"d\\" \\\\"
          user_admin = secret
          user_alice='x'
          "user_b o"="";
        """
    )
    assert login.mechanisms == ("PLAIN",)
    assert login.option("username") == "admin"
    assert login.option("password") == 'a;b=c "d" \\'
    assert login.users == {"admin": "secret", "alice": "'x'", "b o": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN,
        f"{PLAIN} required",
        f"{PLAIN} required username=",
        f"{PLAIN} sometimes username=a;",
        f"{PLAIN} required username a;",
        f"{PLAIN} required username=secret-text username=b;",
        f'{PLAIN} required username="secret-text;',
        f"{PLAIN} required a=b; {PLAIN} required a=b;",
        "com.sun.security.auth.module.JndiLoginModule required user.provider.url=ldap://evil;",
        "os.system required command=x;",
    ],
)
def test_what_cannot_be_read_is_refused_without_being_repeated(text: str) -> None:
    """Among it modules that Java would load."""
    with pytest.raises(JaasError) as refused:
        parse_login(text)
    assert "secret-text" not in str(refused.value)


def test_a_login_does_not_show_its_passwords() -> None:
    """Whoever prints it."""
    assert "secret" not in repr(parse_login(f"{PLAIN} required password=secret;"))


@given(st.text(max_size=200))
def test_any_text_is_a_login_or_an_error(text: str) -> None:
    """And never another exception."""
    try:
        parse_login(f"{PLAIN} required {text}")
    except JaasError:
        return
