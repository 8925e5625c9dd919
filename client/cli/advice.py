"""What to do about an address that clients cannot work with: a sentence, and the line to change where there is one."""

from __future__ import annotations

from ottla.client.cli.dialing import Dialed, DialVerdict
from ottla.client.net.settings import ClientSettings

_UNKNOWN = ("See what the broker's log says of this connection.", "")


def advice_for(dialed: Dialed, settings: ClientSettings) -> tuple[str, str]:
    """Return the sentence and the line."""
    host = dialed.address.host
    user = settings.sasl_plain_username or "USER"
    to_tls = "SASL_SSL" if settings.uses_sasl else "SSL"
    to_plaintext = "SASL_PLAINTEXT" if settings.uses_sasl else "PLAINTEXT"
    to_sasl = "SASL_SSL" if settings.uses_tls else "SASL_PLAINTEXT"
    return {
        DialVerdict.UNKNOWN_NAME: ("Correct the name, or teach this host to resolve it.", ""),
        DialVerdict.REFUSED: ("Start the broker, or give the port of its listener.", "ottla up --detach"),
        DialVerdict.SILENT: ("Check that the host is up, and that no firewall is in between.", ""),
        DialVerdict.TLS: (
            "Have the client speak TLS (SASL_SSL where it needs a password, too).",
            f"security.protocol={to_tls}",
        ),
        DialVerdict.PLAINTEXT: ("Have the client speak plaintext.", f"security.protocol={to_plaintext}"),
        DialVerdict.SASL: (
            "Have the client authenticate, with sasl.username and sasl.password.",
            f"security.protocol={to_sasl}",
        ),
        DialVerdict.PASSWORD: (
            f"Check sasl.username, sasl.password and sasl.mechanism. An administrator can set the password of {user}:",
            f"ottla user update {user}",
        ),
        DialVerdict.MECHANISM: ("Choose one of those that it offers.", "sasl.mechanism=SCRAM-SHA-512"),
        DialVerdict.UNTRUSTED: (
            "Trust the authority that signed the broker's certificate: name the file with the authority's own.",
            "ssl.truststore.location=ca.pem",
        ),
        DialVerdict.EXPIRED: ("Give the broker a new certificate; it takes one without a restart.", ""),
        DialVerdict.OTHER_NAME: (
            f"Reach the broker by a name in its certificate, or have {host} among the names of a new one.",
            "",
        ),
        DialVerdict.CLIENT_CERTIFICATE: (
            "Show a certificate that the broker trusts: a PEM file with key and certificate.",
            "ssl.keystore.location=client.pem",
        ),
        DialVerdict.ZOOKEEPER: ("Give the port of a broker.", f"bootstrap.servers={host}:9092"),
        DialVerdict.HTTP: ("Give the port of a broker's listener.", f"bootstrap.servers={host}:9092"),
    }.get(dialed.verdict, _UNKNOWN)
