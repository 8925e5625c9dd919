"""Keys and certificates out of files and options, and the contexts that follow from them."""

from __future__ import annotations

import ssl
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.broker.security.certificates import Certificates

from ottla.broker.config import BrokerConfig
from ottla.broker.security.tls.key_stores import KeyStoreError
from ottla.broker.security.tls.tls_settings import TlsSettings, openssl_name


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One CA for all tests of the file."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


def settings(options: dict[str, str], listener: str = "SSL") -> TlsSettings:
    """What a config sets for a listener."""
    return TlsSettings.of(BrokerConfig.of(options), listener)


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Have both sides shake hands in memory, and return the client's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours


def private_key(leaf: trustme.LeafCert, password: bytes | None = None) -> str:
    """The key as PKCS#8, encrypted where there is a password."""
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def test_pem_files_make_contexts_for_both_sides(certificates: Certificates) -> None:
    """A broker trusts another broker with a certificate of the same CA."""
    made = settings({**certificates.options(), "ssl.client.auth": "required"})
    shaken(made.server_context(), made.client_context())


def test_pem_may_stand_in_the_options(certificates: Certificates) -> None:
    """With its lines joined, as a properties file does it, and the key encrypted."""
    chain = "".join(pem.bytes().decode() for pem in certificates.broker.cert_chain_pems)
    made = settings(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": private_key(certificates.broker, b"secret").replace("\n", " "),
            "ssl.keystore.certificate.chain": chain.replace("\n", " "),
            "ssl.key.password": "secret",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": certificates.truststore.read_text().replace("\n", " "),
        }
    )
    shaken(made.server_context(), made.client_context())


def write_pkcs12(certificates: Certificates, folder: Path) -> dict[str, str]:
    """Write the broker's key and the CA as Java's tools do, and return the options."""
    key = serialization.load_pem_private_key(certificates.broker.private_key_pem.bytes(), None)
    own = x509.load_pem_x509_certificate(certificates.broker.cert_chain_pems[0].bytes())
    ca = x509.load_pem_x509_certificate(certificates.truststore.read_bytes())
    encryption = serialization.BestAvailableEncryption(b"secret")
    keystore, truststore = folder / "keystore.p12", folder / "truststore.p12"
    keystore.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, own, None, encryption))  # type: ignore[arg-type]
    truststore.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [ca], encryption))
    return {
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.password": "secret",
        "ssl.truststore.location": str(truststore),
        "ssl.truststore.password": "secret",
    }


def test_pkcs12_files_make_contexts(certificates: Certificates, tmp_path: Path) -> None:
    """They are the default, as Kafka's JKS would be."""
    made = settings({**write_pkcs12(certificates, tmp_path), "ssl.client.auth": "required"})
    shaken(made.server_context(), made.client_context())


def test_pkcs12_without_its_package_says_what_to_install(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what to use instead."""
    made = settings(write_pkcs12(certificates, tmp_path))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(KeyStoreError, match=r"pip install 'ottla\[security\]', or use PEM"):
        made.client_context()


def test_a_listener_has_keys_of_its_own(certificates: Certificates, tmp_path: Path) -> None:
    """By the prefix of its name; so brokers can use another key than clients see."""
    inner = Certificates(tmp_path)
    options = {**certificates.options(), **inner.options("listener.name.inner.")}
    shaken(settings(options, "INNER").server_context(), inner.client_context())
    shaken(settings(options, "OUTER").server_context(), certificates.client_context())
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(settings(options, "INNER").server_context(), certificates.client_context())


@pytest.mark.parametrize(("version", "other"), [("TLSv1.2", "TLSv1.3"), ("TLSv1.3", "TLSv1.2")])
def test_only_enabled_versions_are_spoken(certificates: Certificates, version: str, other: str) -> None:
    """Nothing older than 1.2 can be enabled."""
    server = settings({**certificates.options(), "ssl.enabled.protocols": version}).server_context()
    client = certificates.client_context()
    assert shaken(server, client).version() == version
    client.minimum_version = client.maximum_version = ssl.TLSVersion[other.replace(".", "_")]
    with pytest.raises(ssl.SSLError):
        shaken(server, client)


def test_only_enabled_suites_are_used(certificates: Certificates) -> None:
    """By their standard names, as Kafka has them."""
    suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    options = {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": suite}
    made = settings({**certificates.options(), **options})
    cipher = shaken(made.server_context(), certificates.client_context()).cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"


OLDER, NEWER = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"


@pytest.mark.parametrize(
    ("suites", "versions"),
    [
        (OLDER, ["TLSv1.2"]),
        (NEWER, ["TLSv1.3"]),
        (f"{OLDER},{NEWER}", ["TLSv1.2", "TLSv1.3"]),
        ("", ["TLSv1.2", "TLSv1.3"]),
    ],
)
def test_a_version_without_a_suite_is_not_spoken(certificates: Certificates, suites: str, versions: list[str]) -> None:
    """As in Java: whoever lists suites of one version does not want others in another one."""
    server = settings({**certificates.options(), "ssl.cipher.suites": suites}).server_context()
    spoken = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client = certificates.client_context()
        client.minimum_version = client.maximum_version = version
        with suppress(ssl.SSLError):
            spoken.append(shaken(server, client).version())
    assert spoken == versions


@pytest.mark.parametrize(
    ("suites", "protocols", "problem"),
    [
        (
            f"{OLDER},TLS_ECDHE_RSA_WITH_NO_SUCH",
            "TLSv1.2",
            "TLS_ECDHE_RSA_WITH_NO_SUCH, which is not a known suite",
        ),
        (NEWER, "TLSv1.2", "no suite for the versions in ssl.enabled.protocols"),
        (OLDER, "TLSv1.3", "no suite for the versions in ssl.enabled.protocols"),
    ],
)
def test_suites_that_would_be_ignored_are_refused(
    certificates: Certificates, suites: str, protocols: str, problem: str
) -> None:
    """OpenSSL ignores what it does not know."""
    options = {"ssl.enabled.protocols": protocols, "ssl.cipher.suites": suites}
    with pytest.raises(KeyStoreError, match=problem):
        settings({**certificates.options(), **options}).server_context()


@pytest.mark.parametrize(
    ("standard", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "DHE-RSA-CHACHA20-POLY1305"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_have_two_names(standard: str, openssl: str) -> None:
    """Both are taken."""
    assert openssl_name(standard) == openssl


def test_the_host_name_of_another_broker_is_checked_unless_switched_off(tmp_path: Path) -> None:
    """With Kafka's option: an empty algorithm is no check."""
    elsewhere = Certificates(tmp_path, broker_names=("elsewhere.example",))
    checked = settings(elsewhere.options())
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(checked.server_context(), checked.client_context())
    trusting = settings({**elsewhere.options(), "ssl.endpoint.identification.algorithm": ""})
    shaken(trusting.server_context(), trusting.client_context())


def wrong_stores(certificates: Certificates, folder: Path) -> dict[str, tuple[dict[str, str], str]]:
    """Options that do not work, with a word of what is said about them."""
    files = {
        "jks": b"\xfe\xed\xfe\xed\0\0\0\2",
        "empty": b"",
        "key": certificates.broker.private_key_pem.bytes(),
        "locked": private_key(certificates.broker, b"another").encode()
        + certificates.broker.cert_chain_pems[0].bytes(),
        "mixed": certificates.broker.private_key_pem.bytes()
        + certificates.ca.issue_cert("x").cert_chain_pems[0].bytes(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    pem = certificates.options()
    return {
        "no such file": ({**pem, "ssl.keystore.location": "/no/such/file"}, "cannot be read"),
        "wrong type": ({**pem, "ssl.keystore.type": "PKCS12"}, "ssl.keystore.type"),
        "jks": ({**pem, "ssl.keystore.location": str(folder / "jks")}, "keytool -importkeystore"),
        "empty": ({**pem, "ssl.keystore.location": str(folder / "empty")}, "not PEM"),
        "key alone": ({**pem, "ssl.keystore.location": str(folder / "key")}, "a private key with its certificates"),
        "locked": ({**pem, "ssl.keystore.location": str(folder / "locked")}, "ssl.key.password"),
        "mixed": ({**pem, "ssl.keystore.location": str(folder / "mixed")}, "do not belong together"),
        "suites": ({**pem, "ssl.cipher.suites": "TLS_NO_WITH_SUCH"}, "ssl.cipher.suites"),
        "p12 password": ({**write_pkcs12(certificates, folder), "ssl.keystore.password": "wrong"}, "its password"),
        "no truststore": (
            {name: value for name, value in pem.items() if "trust" not in name} | {"ssl.client.auth": "required"},
            "ssl.truststore.location",
        ),
        "no key": ({"ssl.client.auth": "none"}, "ssl.keystore.location"),
    }


def test_what_is_wrong_with_a_store_is_said_in_words(certificates: Certificates, tmp_path: Path) -> None:
    """Which say what to do, and hold nothing of a key or a password."""
    for name, (options, words) in wrong_stores(certificates, tmp_path).items():
        with pytest.raises(KeyStoreError) as refused:
            settings({**options, "ssl.truststore.password": "secret"}).server_context()
        assert words in str(refused.value), name
        assert "PRIVATE KEY" not in str(refused.value)


def test_settings_do_not_show_their_secrets(certificates: Certificates) -> None:
    """Whoever prints them."""
    assert "planted" not in repr(settings({**certificates.options(), "ssl.keystore.password": "planted"}))


def test_a_changed_file_changes_the_stamp(tmp_path: Path) -> None:
    """And one that is gone."""
    made = settings((owned := Certificates(tmp_path)).options())
    first = made.stamp()
    assert made.stamp() == first
    owned.write(owned.keystore, owned.ca, "127.0.0.1")
    second = made.stamp()
    owned.keystore.unlink()
    assert len({first, second, made.stamp()}) == 3
