"""The name in a certificate, written as Java writes it: RFC 2253, the most specific part first.

    SEQUENCE certificate
      SEQUENCE to be signed
        [0] version, INTEGER serial, SEQUENCE algorithm, SEQUENCE issuer, SEQUENCE validity, SEQUENCE subject ...
      ...
    subject = SEQUENCE of SET of SEQUENCE (OBJECT IDENTIFIER type, string value)

Types without a short name in RFC 2253 appear as their numbers, and their values as `#` and the bytes in hex.

OpenSSL has checked the certificate before: an authority that we trust has signed it. Brokers read this one field
without another package. Tests compare it with what `cryptography` reads, in whole and in damaged certificates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}
_VERSION_TAG: Final = 0xA0
_SUBJECT_POSITION: Final = 4
_IDENTIFIER_BYTES_MAX: Final = 64
_ESCAPED: Final = frozenset(',+"\\<>;')


class CertificateNameError(ValueError):
    """The bytes are not a certificate."""


class _Element(NamedTuple):
    tag: int
    content: memoryview
    whole: memoryview


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER."""
    signed = next(_elements(_only(memoryview(certificate)).content), None)
    if signed is None:
        raise CertificateNameError("nothing is signed")
    fields = [field for field in _elements(signed.content) if field.tag != _VERSION_TAG]
    if len(fields) <= _SUBJECT_POSITION:
        raise CertificateNameError("there is no subject")
    parts = [_relative_name(part.content) for part in _elements(fields[_SUBJECT_POSITION].content)]
    return ",".join(reversed(parts))


def _relative_name(content: memoryview) -> str:
    return "+".join(_attribute(attribute.content) for attribute in _elements(content))


def _attribute(content: memoryview) -> str:
    fields = list(_elements(content))
    if len(fields) != 2:
        raise CertificateNameError("an attribute is a type and a value")
    kind, value = fields
    number = _identifier(bytes(kind.content))
    keyword, text = _KEYWORDS.get(number), _text(value)
    if keyword is None or text is None:
        return f"{keyword or number}=#{bytes(value.whole).hex()}"
    return f"{keyword}={_escaped(text)}"


def _text(value: _Element) -> str | None:
    """Return the text of a string; None if it is none. To replace bytes would give two clients the same name."""
    try:
        return bytes(value.content).decode(_ENCODINGS[value.tag])
    except (KeyError, UnicodeDecodeError):
        return None


def _escaped(text: str) -> str:
    escaped = "".join("\\" + char if char in _ESCAPED else char for char in text)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if len(text) > 1 and text.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped


def _identifier(content: bytes) -> str:
    """Decode an object identifier: numbers in base 128; the first one stands for two."""
    if len(content) > _IDENTIFIER_BYTES_MAX:
        raise CertificateNameError("an object identifier is too long")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise CertificateNameError("an object identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _only(data: memoryview) -> _Element:
    element = next(_elements(data), None)
    if element is None:
        raise CertificateNameError("there is no certificate")
    return element


def _elements(data: memoryview) -> Iterator[_Element]:
    """Split into elements: a byte for the tag, one or more for the length, and that many bytes."""
    position, end = 0, len(data)
    while position < end:
        if end - position < 2:
            raise CertificateNameError("an element is cut off")
        tag, length, begin = data[position], data[position + 1], position + 2
        if length >= 0x80:
            digits = length & 0x7F
            if not 1 <= digits <= 4 or end - begin < digits:
                raise CertificateNameError("a length cannot be read")
            length = int.from_bytes(data[begin : begin + digits])
            begin += digits
        if length > end - begin:
            raise CertificateNameError("an element is longer than what holds it")
        yield _Element(tag, data[begin : begin + length], data[position : begin + length])
        position = begin + length
