"""Names in certificates: written as Java writes them, and made into users by rules."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.security.tls.distinguished_name import CertificateNameError, subject_of
from ottla.broker.security.tls.principal_mapping import MappingRulesError, PrincipalMapping

KEY = ec.generate_private_key(ec.SECP256R1())
OIDS = {
    "C": NameOID.COUNTRY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "L": NameOID.LOCALITY_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "CN": NameOID.COMMON_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
    "UID": NameOID.USER_ID,
    "STREET": NameOID.STREET_ADDRESS,
    "email": NameOID.EMAIL_ADDRESS,
}


def certificate(*parts: tuple[tuple[str, str], ...]) -> bytes:
    """A certificate in DER with a subject of some relative names, each of some attributes."""
    subject = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(OIDS[kind], value) for kind, value in part])
            for part in parts
        ]
    )
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.DER)


def one(kind: str, value: str) -> tuple[tuple[str, str], ...]:
    """A relative name of one attribute."""
    return ((kind, value),)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([one("CN", "alice")], "CN=alice"),
        ([one("C", "DE"), one("O", "y"), one("OU", "x"), one("CN", "alice")], "CN=alice,OU=x,O=y,C=DE"),
        (
            [one("ST", "a"), one("L", "b"), one("STREET", "c"), one("DC", "d"), one("UID", "e")],
            "UID=e,DC=d,STREET=c,L=b,ST=a",
        ),
        ([one("CN", "Müller, Ann")], "CN=Müller\\, Ann"),
        ([one("CN", 'a+b"c\\d<e>f;g=h')], 'CN=a\\+b\\"c\\\\d\\<e\\>f\\;g=h'),
        ([one("CN", "#1")], "CN=\\#1"),
        ([one("CN", " x ")], "CN=\\ x\\ "),
        ([(("CN", "a"), ("OU", "b"))], "CN=a+OU=b"),
        ([one("email", "a@b.c"), one("CN", "a")], "CN=a,1.2.840.113549.1.9.1=#16056140622e63"),
        ([], ""),
    ],
)
def test_a_subject_is_written_as_java_does(parts: list[tuple[tuple[str, str], ...]], name: str) -> None:
    """RFC 2253: the most special part first, signs escaped, and types without a word as numbers."""
    assert subject_of(certificate(*parts)) == name


WHOLE = certificate(one("O", "y"), one("CN", "alice"))


@examples(300)
@given(st.data())
def test_any_bytes_are_a_name_or_an_error(data: st.DataObject) -> None:
    """Also those of a certificate with some of them changed."""
    whole = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    for raw in (bytes(whole), bytes(whole[: data.draw(st.integers(0, len(whole)))]), data.draw(st.binary())):
        try:
            subject_of(raw)
        except CertificateNameError:
            continue


NAME = "CN=kafka-0.example,OU=ServiceUsers,O=Org Two,C=DE"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "kafka-0.example"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", "KAFKA-0.EXAMPLE"),
        (r"RULE:^CN=(.*?), OU=x.*$/$1/L, RULE:^CN=([^,]+),OU=(\w+).*$/$1@$2/L,DEFAULT", "kafka-0.example@serviceusers"),
        (r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.-]*).*$/a\/$1\$1/", "a/kafka-0.example$1"),
        ("RULE:^CN=nobody.*$/x/,DEFAULT", NAME),
        ("RULE:^CN=nobody.*$/x/", None),
        ("RULE:CN/x/", None),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_makes_the_user(rules: str, user: str | None) -> None:
    """Without one, nobody knows who it is."""
    assert PrincipalMapping(rules).user(NAME) == user


@pytest.mark.parametrize("rules", ["default", "RULE:(/x/", "RULE:a/b", "RULE:a/$1/", "RULE:a/b/Q", "DEFAULT RULE:a/b/"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    """Rather than letting somebody in as somebody else."""
    with pytest.raises(MappingRulesError):
        PrincipalMapping(rules)
