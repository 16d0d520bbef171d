"""Settings of a client, all about its connections; the rules of `client.config` hold here, too."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ...security.credentials.authentication import Authentication
from ...security.credentials.client_security import ClientSecurity
from ..checks import TEXT_BYTES_MAX, check_least, check_range, check_text


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Settings of a client.

    Attributes:
        operation_timeout_s: how long one request, and creating a producer or consumer with its retries, may take.
        connection_timeout_s: how long connecting and the handshake may take.
        keep_alive_s: a PING goes out this often; a broker silent for one more such time is taken for dead.
        backoff_initial_ms: first wait before a retry; doubles with each.
        backoff_max_ms: longest wait before a retry.
        max_redirects: how many times a lookup may be sent to another broker.
        description: is added to the client version that brokers show.
        memory_limit_bytes: of messages that are sent but not yet stored, of all producers together; 0 for none beside
            those of each. What happens at the limit says each producer's ``block_if_queue_full``.
        stats_interval_s: producers and consumers count what they do, for `statistics`, and log it this often; 0 for
            neither.
        message_listener_threads: of the blocking client, on which it calls listeners.
        authentication: shows brokers who the client is; `AuthenticationToken` for example.
        auth_plugin: the same by a name instead: ``token``, ``basic``, ``tls``, ``oauth2``, one of Pulsar's classes, or
            ``module:Class`` of your own.
        auth_params: what the plugin is told, as in Pulsar's ``client.conf``; never shown.
        tls_trust_certs_file: certificates (PEM) of the authorities that are trusted; empty for those of the system.
        tls_certificate_file: certificate (PEM) of the client, where brokers ask for one.
        tls_key_file: its private key (PEM).
        tls_allow_insecure_connection: take any certificate of a broker; for trying.
        tls_hostname_verification: the certificate of a broker must name the host that is connected to. On, unlike in
            Pulsar's clients.
    """

    operation_timeout_s: float = 30.0
    connection_timeout_s: float = 10.0
    keep_alive_s: float = 30.0
    backoff_initial_ms: int = 100
    backoff_max_ms: int = 60_000
    max_redirects: int = 20
    description: str = ""
    memory_limit_bytes: int = 0
    stats_interval_s: float = 0.0
    message_listener_threads: int = 1
    authentication: Authentication | None = None
    auth_plugin: str = ""
    auth_params: str = field(default="", repr=False)
    tls_trust_certs_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_allow_insecure_connection: bool = False
    tls_hostname_verification: bool = True

    def __post_init__(self) -> None:
        check_least("operation_timeout_s", self.operation_timeout_s, 0.001)
        check_least("connection_timeout_s", self.connection_timeout_s, 0.001)
        check_least("keep_alive_s", self.keep_alive_s, 0.001)
        check_least("backoff_initial_ms", self.backoff_initial_ms, 1)
        check_least("backoff_max_ms", self.backoff_max_ms, self.backoff_initial_ms)
        check_least("max_redirects", self.max_redirects, 0)
        check_text("description", self.description, TEXT_BYTES_MAX)
        check_least("memory_limit_bytes", self.memory_limit_bytes, 0)
        check_least("stats_interval_s", self.stats_interval_s, 0)
        check_range("message_listener_threads", self.message_listener_threads, 1, 1024)
        _ = self.security  # which checks what it is made of

    @property
    def security(self) -> ClientSecurity:
        """What is said of authentication and TLS in plain values; without ``authentication``."""
        return ClientSecurity(**{one.name: getattr(self, one.name) for one in fields(ClientSecurity)})
