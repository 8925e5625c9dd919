"""Options of TLS, SASL and access control."""

from __future__ import annotations

from ottla.broker.config.addresses import PrincipalsKind
from ottla.broker.config.kinds import Boolean, Int, List, Long, Secret, String
from ottla.broker.config.option import DAYS, HOURS, PER_BROKER, SECONDS, KiB, Option, Options

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# A file of type JKS may be PKCS12, which Java writes today under this name. A real one is refused with the command that
# converts it.
_STORE_TYPES = ("JKS", "PEM", "PKCS12")


class TlsOptions(Options):
    """Keys, certificates and protocols."""

    theme = "TLS"

    ssl_keystore_type = Option(
        String(one_of=_STORE_TYPES), "PKCS12", "Format of the keystore.", PER_BROKER, kafka_default="JKS"
    )
    ssl_keystore_location = Option(String(), None, "File with the key and its certificates.", PER_BROKER)
    ssl_keystore_password = Option(Secret(), None, "Password of a PKCS12 keystore.", PER_BROKER)
    ssl_keystore_key = Option(Secret(), None, "Private key as PEM text, instead of a file.", PER_BROKER)
    ssl_keystore_certificate_chain = Option(Secret(), None, "Certificates of that key as PEM text.", PER_BROKER)
    ssl_key_password = Option(Secret(), None, "Password of the private key.", PER_BROKER)
    ssl_truststore_type = Option(
        String(one_of=_STORE_TYPES), "PKCS12", "Format of the truststore.", PER_BROKER, kafka_default="JKS"
    )
    ssl_truststore_location = Option(String(), None, "File with the trusted certificates.", PER_BROKER)
    ssl_truststore_password = Option(Secret(), None, "Password of a PKCS12 truststore.", PER_BROKER)
    ssl_truststore_certificates = Option(
        Secret(), None, "Trusted certificates as PEM text, instead of a file.", PER_BROKER
    )
    ssl_client_auth = Option(
        String(one_of=("required", "requested", "none")), "none", "Whether clients need a certificate.", PER_BROKER
    )
    ssl_enabled_protocols = Option(
        List(one_of=("TLSv1.2", "TLSv1.3")), ("TLSv1.2", "TLSv1.3"), "Accepted versions of TLS.", PER_BROKER
    )
    ssl_cipher_suites = Option(List(), (), "Accepted cipher suites; empty means the library's default.", PER_BROKER)
    ssl_endpoint_identification_algorithm = Option(
        String(one_of=("https", "HTTPS", "")),
        "https",
        "Check the host name in the certificate of another broker; empty means no check.",
        PER_BROKER,
    )
    ssl_principal_mapping_rules = Option(
        String(), "DEFAULT", "Rules that turn the name in a client's certificate into a user name."
    )


class SaslOptions(Options):
    """Authentication by SASL."""

    theme = "SASL"

    sasl_enabled_mechanisms = Option(
        List(one_of=SASL_MECHANISMS),
        (),
        "Mechanisms that clients may use; a listener with SASL needs at least one.",
        PER_BROKER,
        kafka_default="GSSAPI",
    )
    sasl_mechanism_inter_broker_protocol = Option(
        String(one_of=SASL_MECHANISMS),
        None,
        "Mechanism between brokers; required if their listener has SASL.",
        PER_BROKER,
        kafka_default="GSSAPI",
    )
    sasl_jaas_config = Option(
        Secret(),
        None,
        "Users of PLAIN, and the broker's own login, for one mechanism of one listener.",
        PER_BROKER,
    )
    ottla_sasl_plain_allow_without_tls = Option(
        Boolean(), False, "Let clients send passwords over SASL_PLAINTEXT, where anybody on the network can read them."
    )
    sasl_server_max_receive_size = Option(
        Int(at_least=1), 512 * KiB, "Maximum size of a request before the client is authenticated."
    )
    connections_max_reauth_ms = Option(
        Long(at_least=0), 0, "Time after which a client must authenticate again; 0 means never."
    )
    sasl_oauthbearer_jwks_endpoint_url = Option(
        String(),
        None,
        "Where the public keys of the token issuer are: an https: URL, or a local file as a path or a file: URL.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = Option(
        Long(at_least=1), 1 * HOURS, "How often keys are fetched from a URL."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = Option(
        Long(at_least=1), 100, "Pause before keys are fetched again after a failure; it doubles with each failure."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = Option(
        Long(at_least=1), 10 * SECONDS, "Longest pause before keys are fetched again."
    )
    sasl_oauthbearer_token_endpoint_url = Option(
        String(),
        None,
        "Where this broker gets tokens for its own login; clientId, clientSecret and scope are in sasl.jaas.config.",
    )
    ottla_sasl_oauthbearer_cafile = Option(
        String(), None, "PEM file with the certificates to trust at both URLs; the default is those of the system."
    )
    sasl_oauthbearer_expected_audience = Option(List(), None, "Audiences; a token must name one of them.")
    sasl_oauthbearer_expected_issuer = Option(String(), None, "Required issuer of a token.")
    sasl_oauthbearer_clock_skew_seconds = Option(
        Int(at_least=0), 30, "How far the issuer's clock may be off, in seconds."
    )
    sasl_oauthbearer_scope_claim_name = Option(String(), "scope", "Claim of a token with the scope.")
    sasl_oauthbearer_sub_claim_name = Option(String(), "sub", "Claim of a token with the user name.")


class DelegationTokenOptions(Options):
    """Tokens with which clients log in instead of their password."""

    theme = "Delegation tokens"

    delegation_token_secret_key = Option(
        Secret(), None, "Secret of which all tokens are made, the same on all brokers; without it there are no tokens."
    )
    delegation_token_master_key = Option(Secret(), None, "Older name of delegation.token.secret.key.")
    delegation_token_max_lifetime_ms = Option(
        Long(at_least=1), 7 * DAYS, "Time after which a token cannot be renewed any more."
    )
    delegation_token_expiry_time_ms = Option(
        Long(at_least=1), 1 * DAYS, "Time after which a token expires unless it is renewed."
    )
    delegation_token_expiry_check_interval_ms = Option(
        Long(at_least=1), 1 * HOURS, "How often the controller deletes expired tokens."
    )


class AccessOptions(Options):
    """Who may do what."""

    theme = "Access control"

    authorizer_class_name = Option(
        String(
            one_of=(
                "",
                "kafka.security.authorizer.AclAuthorizer",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            )
        ),
        "",
        "Turns on ACLs, under either of Kafka's names; if empty, everybody may do everything.",
    )
    super_users = Option(PrincipalsKind(), (), "Principals that may do everything, whatever the ACLs say.")
    ottla_audit = Option(
        String(one_of=("log", "topic", "off")),
        "log",
        "Where refusals, logins and changes are noted: in the log, in the topic __ottla_audit, or nowhere.",
    )
    allow_everyone_if_no_acl_found = Option(Boolean(), False, "Allow access to resources without ACLs.")
