"""Names in certificates: written as Java writes them, and made into users by rules."""

from __future__ import annotations

import datetime
import re
import time
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.security.tls.distinguished_name import CertificateNameError, subject_of
from ottla.broker.security.tls.principal_mapping import MappingRulesError, PrincipalMapping

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
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
    return signed(subject)


def signed(subject: x509.Name) -> bytes:
    """A certificate in DER for a subject."""
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(KEY, None)
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


KEYWORDS = {oid: keyword for keyword, oid in OIDS.items() if keyword != "email"}
ENCODINGS = {
    _ASN1Type.UTF8String: "utf-8",
    _ASN1Type.PrintableString: "ascii",
    _ASN1Type.IA5String: "ascii",
    _ASN1Type.BMPString: "utf-16-be",
    _ASN1Type.UniversalString: "utf-32-be",
}


def written(name: x509.Name) -> str:
    """A name as Java writes it, from what another parser has read."""
    return ",".join("+".join(map(attribute, part)) for part in reversed(list(name.rdns)))


def attribute(found: x509.NameAttribute[Any]) -> str:
    """One attribute: its word, or its number and the bytes of its value."""
    keyword, value = KEYWORDS.get(found.oid), str(found.value)
    if keyword is None:
        data = value.encode(ENCODINGS[found._type])
        length = bytes([len(data)]) if len(data) < 128 else bytes([0x81, len(data)])
        return f"{found.oid.dotted_string}=#{(bytes([found._type.value]) + length + data).hex()}"
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    escaped = re.sub(r"^([# ])", r"\\\1", escaped)
    if len(value) > 1 and value.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return f"{keyword}={escaped}"


def text(kind: _ASN1Type) -> st.SearchStrategy[str]:
    """Text that a type of string can hold."""
    if kind is _ASN1Type.PrintableString:
        return st.text("abcXYZ019 '()+,-./:=?", min_size=1, max_size=20)
    last = {_ASN1Type.IA5String: 0x7F, _ASN1Type.BMPString: 0xFFFF}
    characters = st.characters(codec="utf-8", max_codepoint=last.get(kind, 0x10FFFF))
    return st.text(characters, min_size=1, max_size=20)


@st.composite
def attributes(draw: st.DrawFn) -> x509.NameAttribute[Any]:
    """One attribute of any type, with any type of string."""
    kind = draw(st.sampled_from(sorted(ENCODINGS, key=lambda each: each.value)))
    # A country has two letters.
    oid = draw(st.sampled_from([oid for keyword, oid in OIDS.items() if keyword != "C"]))
    return x509.NameAttribute(oid, draw(text(kind)), kind, _validate=False)


@st.composite
def names(draw: st.DrawFn) -> x509.Name:
    """A subject; its parts may have several attributes."""
    parts = draw(st.lists(st.lists(attributes(), min_size=1, max_size=3), max_size=5))
    return x509.Name([x509.RelativeDistinguishedName(set(part)) for part in parts])


@examples(100)
@given(names())
def test_names_are_read_as_another_parser_reads_them(name: x509.Name) -> None:
    """Any types, any text, several attributes in a part."""
    raw = signed(name)
    assert subject_of(raw) == written(x509.load_der_x509_certificate(raw).subject)


@examples(100)
@given(names(), st.data())
def test_a_damaged_certificate_has_no_other_name_than_another_parser_reads(
    name: x509.Name, data: st.DataObject
) -> None:
    """If the other parser refuses it, ours may refuse it, too; no client gets the name of another."""
    whole = bytearray(signed(name))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = written(x509.load_der_x509_certificate(bytes(whole)).subject)
    except (ValueError, KeyError, x509.InvalidVersion):
        return
    assert subject_of(bytes(whole)) == expected


def test_text_that_cannot_be_decoded_stays_apart() -> None:
    """Two names must not become one."""
    raw = certificate(one("CN", "al\u00eece"))
    broken = [raw.replace("\u00ee".encode(), bad) for bad in (b"\xff\xfe", b"\xfe\xff")]
    assert len({subject_of(each) for each in broken}) == 2


def test_an_identifier_without_end_costs_no_time() -> None:
    """Its bytes are one number, which would be computed again for each of them."""
    identifier = b"\x06\x83\x01\x00\x00" + b"\xff" * 65535 + b"\x7f"
    content = identifier + b"\x0c\x01x"
    for tag in (0x30, 0x31, 0x30):
        content = bytes([tag, 0x83]) + len(content).to_bytes(3) + content
    fields = b"\x02\x01\x01\x30\x00\x30\x00\x30\x00" + content
    for tag in (0x30, 0x30):
        fields = bytes([tag, 0x83]) + len(fields).to_bytes(3) + fields
    begun = time.process_time()
    with pytest.raises(CertificateNameError):
        subject_of(fields)
    assert time.process_time() - begun < 0.5


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
