"""What to do about an address that clients cannot use: a sentence and, if there is one, the line to change."""

from __future__ import annotations

from ottla.client.cli.health.dialing import Dialed, DialVerdict
from ottla.client.net.settings import ClientSettings

_UNKNOWN = ("Look for this connection in the broker's log.", "")


def advice_for(dialed: Dialed, settings: ClientSettings) -> tuple[str, str]:
    """Return the sentence and the line."""
    host = dialed.address.host
    user = settings.sasl_plain_username or "USER"
    to_tls = "SASL_SSL" if settings.uses_sasl else "SSL"
    to_plaintext = "SASL_PLAINTEXT" if settings.uses_sasl else "PLAINTEXT"
    to_sasl = "SASL_SSL" if settings.uses_tls else "SASL_PLAINTEXT"
    return {
        DialVerdict.UNKNOWN_NAME: ("Correct the name, or make this host resolve it.", ""),
        DialVerdict.REFUSED: ("Start the broker, or use the port of its listener.", "ottla up --detach"),
        DialVerdict.SILENT: ("Check that the host is up, and that no firewall blocks the port.", ""),
        DialVerdict.TLS: (
            "Make the client use TLS (SASL_SSL if it also needs a password).",
            f"security.protocol={to_tls}",
        ),
        DialVerdict.PLAINTEXT: ("Make the client use plaintext.", f"security.protocol={to_plaintext}"),
        DialVerdict.SASL: (
            "Make the client authenticate with sasl.username and sasl.password.",
            f"security.protocol={to_sasl}",
        ),
        DialVerdict.PASSWORD: (
            f"Check sasl.username, sasl.password and sasl.mechanism. An administrator can set the password of {user}:",
            f"ottla user update {user}",
        ),
        DialVerdict.MECHANISM: ("Use a mechanism that the broker offers.", "sasl.mechanism=SCRAM-SHA-512"),
        DialVerdict.UNTRUSTED: (
            "Trust the authority that signed the broker's certificate: name the file with the authority's certificate.",
            "ssl.truststore.location=ca.pem",
        ),
        DialVerdict.EXPIRED: ("Give the broker a new certificate; it needs no restart for that.", ""),
        DialVerdict.OTHER_NAME: (
            f"Use a name that is in the broker's certificate, or create a new certificate that includes {host}.",
            "",
        ),
        DialVerdict.CLIENT_CERTIFICATE: (
            "Present a certificate that the broker trusts: a PEM file with key and certificate.",
            "ssl.keystore.location=client.pem",
        ),
        DialVerdict.ZOOKEEPER: ("Use the port of a broker.", f"bootstrap.servers={host}:9092"),
        DialVerdict.HTTP: ("Use the port of a broker's listener.", f"bootstrap.servers={host}:9092"),
    }.get(dialed.verdict, _UNKNOWN)
