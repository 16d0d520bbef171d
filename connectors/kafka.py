"""Shared parts of the ``kafka`` source and sink: connection settings and topic metadata."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from logging import Logger
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..api.connector import Retry
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

BASE64_NAMES = "__kafka_base64"
"""Property that lists the properties encoded as base64 because they are not valid UTF-8, separated by commas."""
BASE64_KEY = "__kafka_base64_key"
"""Property of a message whose key is base64-encoded; its value is ``true``."""
ASK_S = 3.0
"""Timeout of a metadata request to Kafka, in seconds."""

_AWAY_S = 1.0
"""How long a client may go without a reachable broker, in seconds."""
_JAAS = re.compile(r"\s*[\w.]*?(\w+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL)
_NAMES_IN_JAVA = {"fetch.max.wait.ms": "fetch.wait.max.ms"}
_NOT_HERE = {
    "sasl.jaas.config": "give saslJaasConfig, which is kept as a secret",
    "sasl.password": "give saslPassword, which is kept as a secret",
    "sasl.mechanism": "give saslMechanism",
    "sasl.mechanisms": "give saslMechanism",
    "security.protocol": "give securityProtocol",
    "plugin.library.paths": "it loads code into the instance",
    "enable.auto.offset.store": "what is stored are the offsets of records that are durable",
    "partition.assignment.strategy": "the connector has range and roundrobin",
    "group.protocol": "the connector is a member of a classic group",
    "transactional.id": "the connector writes without transactions",
    "delivery.report.only.error": "the connector sets it",
}


@dataclass(kw_only=True)
class KafkaConfig:
    """Connection settings of the ``kafka`` connectors."""

    bootstrap_servers: str = option("Comma-separated bootstrap brokers, host:port.")
    topic: str = option("The topic in Kafka; it must exist.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = option(
        "Security protocol of the connections.", default="PLAINTEXT"
    )
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = option(
        "SASL mechanism; empty for PLAIN if a user is set.", default=""
    )
    sasl_jaas_config: str = option(
        "Kafka's way to give user and password: …LoginModule required username=\"u\" password=\"p\";",
        default="",
        secret=True,
    )  # fmt: skip
    sasl_username: str = option("The user; instead of saslJaasConfig.", default="")
    sasl_password: str = option("The user's password; instead of saslJaasConfig.", default="", secret=True)
    ssl_enabled_protocols: str = option("Refused: the newest TLS that both sides have is taken.", default="")
    ssl_endpoint_identification_algorithm: str = option(
        "https: the certificate must be that of the host; empty: it need not.", default="https"
    )
    ssl_truststore_location: str = option(
        "File with the certificates, in PEM, that sign those of brokers; empty for those of the system.", default=""
    )
    ssl_truststore_password: str = option("Refused: a PEM file has none.", default="", secret=True)

    def check_connection(self) -> None:
        """Validate the connection settings.

        Raises:
            InvalidConfig: a setting is not supported; the message names the field and the alternative.
        """
        for server in filter(None, map(str.strip, self.bootstrap_servers.split(","))):
            host, colon, port = server.rpartition("://")[2].rpartition(":")
            if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
                raise InvalidConfig(f"bootstrapServers: {server!r} is not host:port")
        if not self.bootstrap_servers.strip(" ,"):
            raise InvalidConfig("bootstrapServers is empty; give host:port")
        if not re.fullmatch(r"[\w.-]{1,249}", self.topic, re.ASCII) or self.topic in (".", ".."):
            raise InvalidConfig(f"invalid topic {self.topic[:60]!r}: expected letters, digits, . _ and -")
        if self.ssl_enabled_protocols:
            raise InvalidConfig("sslEnabledProtocols: the newest TLS that both sides have is taken; leave it out")
        if self.ssl_endpoint_identification_algorithm not in ("", "https"):
            raise InvalidConfig("sslEndpointIdentificationAlgorithm must be https or empty")
        if re.search(r"\.(jks|p12|pfx|keystore|truststore)$", self.ssl_truststore_location, re.IGNORECASE):
            raise InvalidConfig(
                f"sslTruststoreLocation: {self.ssl_truststore_location} is a Java store; give a PEM file:"
                " keytool -exportcert -rfc -keystore STORE -alias NAME -file ca.pem"
            )
        if self.ssl_truststore_password:
            raise InvalidConfig("sslTruststorePassword: a PEM file has none; leave it out")
        user, _ = self.login()
        if user and not self.security_protocol.startswith("SASL"):
            raise InvalidConfig(f"securityProtocol {self.security_protocol} sends no user; give SASL_SSL")
        if self.security_protocol.startswith("SASL") and not user:
            raise InvalidConfig(f"securityProtocol {self.security_protocol} needs a user; give saslJaasConfig")

    def login(self) -> tuple[str, str]:
        """Return user and password; empty if not set.

        Raises:
            InvalidConfig: they are set twice, or by an unknown login module.
        """
        if not self.sasl_jaas_config:
            return self.sasl_username, self.sasl_password
        if self.sasl_username or self.sasl_password:
            raise InvalidConfig("saslJaasConfig and saslUsername or saslPassword are the same; give one of them")
        remedy = "give saslUsername and saslPassword"
        if not (found := _JAAS.fullmatch(self.sasl_jaas_config)):
            raise InvalidConfig(f'saslJaasConfig is not: …LoginModule required username="…" password="…"; {remedy}')
        module, options = found.groups()
        if module not in ("PlainLoginModule", "ScramLoginModule"):
            known = "PlainLoginModule and ScramLoginModule are"
            raise InvalidConfig(f"saslJaasConfig: {module} is not known here, {known}")
        if (module == "ScramLoginModule") != self.sasl_mechanism.startswith("SCRAM"):
            fitting = "PLAIN" if module == "PlainLoginModule" else "SCRAM-SHA-256 or SCRAM-SHA-512"
            raise InvalidConfig(f"saslMechanism: the {module} of saslJaasConfig needs {fitting}")
        try:
            given = dict(part.split("=", 1) for part in shlex.split(options))
            return given["username"], given["password"]
        except (ValueError, KeyError):
            raise InvalidConfig(f"saslJaasConfig has no username and password; {remedy}") from None

    def connection(self) -> dict[str, Any]:
        """Return the settings under librdkafka's names."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "socket.keepalive.enable": True,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 2,  # else each connection attempt logs a line; `Connection` keeps the last
        }
        user, password = self.login()
        if self.security_protocol.startswith("SASL"):
            settings["sasl.mechanism"] = self.sasl_mechanism or "PLAIN"
            settings |= {"sasl.username": user, "sasl.password": password}
        if self.security_protocol.endswith("SSL"):
            settings["ssl.endpoint.identification.algorithm"] = self.ssl_endpoint_identification_algorithm or "none"
            if self.ssl_truststore_location:
                settings["ssl.ca.location"] = self.ssl_truststore_location
        return settings


def library() -> Any:
    """Return the library. Raises InvalidConfig if it is not installed."""
    return need("kafka", "confluent_kafka")


def properties_of(key: str, given: Mapping[str, Any], refused: Mapping[str, str]) -> dict[str, str]:
    """Convert client properties to librdkafka's format.

    Args:
        key: key of the option that contains them.
        given: value of that option.
        refused: properties that have options of their own or cannot be set, each with what to do instead.

    Raises:
        InvalidConfig: one of them cannot be set.
    """
    settings = {}
    for name, value in given.items():
        if reason := refused.get(name) or _NOT_HERE.get(name):
            raise InvalidConfig(f"{key}: {name}: {reason}")
        if re.search(r"password|secret|\.pem$", name):
            raise InvalidConfig(
                f"{key}: {name}: its value would be shown; give a file that is protected, without password"
            )
        if name.endswith("_cb") or name in ("error_cb", "on_commit", "logger"):
            raise InvalidConfig(f"{key}: {name} is code; it cannot be set")
        settings[_NAMES_IN_JAVA.get(name, name)] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


def check_properties(key: str, make: str, settings: Mapping[str, str]) -> None:
    """Reject properties that the library does not know, by creating a client without connecting it.

    Nothing is checked if the library is not installed; paths of files are not checked.

    Raises:
        InvalidConfig: the library's reason, which names the property.
    """
    try:
        kafka = library()
    except InvalidConfig:
        return
    given = {name: value for name, value in settings.items() if "location" not in name}
    client_type = getattr(kafka, make)
    try:
        client = client_type({"log_level": 0, **given, **({"group.id": "check"} if make == "Consumer" else {})})
    except (kafka.KafkaException, TypeError, ValueError) as error:
        raise InvalidConfig(
            f"{key}: {cause_of(error)}; the names are those of librdkafka's CONFIGURATION.md"
        ) from error
    if make == "Consumer":
        client.close()


def cause_of(error: BaseException) -> str:
    """Return the error text in one line."""
    first = error.args[0] if error.args else error
    text = first.str() if hasattr(first, "str") else str(first)
    return " ".join(str(text).split())


class Topic(NamedTuple):
    """Metadata of a Kafka topic.

    Attributes:
        id: topic id, which changes if the topic is recreated; empty if Kafka does not report it.
        partitions: number of partitions.
        is_compacted: whether the topic is compacted.
        largest: maximum bytes of a record batch; 0 if unknown.
    """

    id: str
    partitions: int
    is_compacted: bool
    largest: int


class Connection:
    """Connection errors of a client, which reconnects by itself.

    Attributes:
        trouble: the last error since `forget`; empty if there was none.
        is_away: whether no broker can be reached.
    """

    def __init__(self, config: KafkaConfig, logger: Logger) -> None:
        """Create an error log for clients whose ``error_cb`` is `failed`."""
        self.trouble = ""
        self.is_away = False
        self._config = config
        self._log = logger

    def failed(self, error: KafkaError) -> None:
        """Remember an error; called by the client on the thread that polls it."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self.is_away = True
            self.trouble = self.trouble or cause_of(Exception(error))
        else:
            self.trouble = cause_of(Exception(error))

    def forget(self) -> None:
        """Forget the last error."""
        self.trouble = ""
        self.is_away = False

    def away(self, error: BaseException | str) -> Retry:
        """Return the error to raise if Kafka is unavailable."""
        text = error if isinstance(error, str) else cause_of(error)
        known = f" ({self.trouble})" if self.trouble and self.trouble not in text else ""
        return Retry(f"Kafka at {self._config.bootstrap_servers}: {text}{known}")

    def describe(self, kafka: Any) -> Topic:
        """Request the topic's metadata.

        Raises:
            Retry: Kafka is unavailable or rejects the login, or the topic does not exist.
            InvalidConfig: the client settings are invalid.
        """
        admin = need("kafka", "confluent_kafka.admin")
        settings = {**self._config.connection(), "error_cb": self.failed}
        name = self._config.topic
        try:
            client = admin.AdminClient(settings)
        except kafka.KafkaException as error:
            raise InvalidConfig(cause_of(error)) from error
        (asked,) = client.describe_topics(kafka.TopicCollection([name]), request_timeout=ASK_S).values()
        try:
            found = self._answer(client, asked)
        except kafka.KafkaException as error:
            if error.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                servers = self._config.bootstrap_servers
                raise Retry(
                    f"Kafka at {servers} has no topic {name}; make it: kafka-topics.sh --create --topic {name}"
                    f" --bootstrap-server {servers}"
                ) from error
            raise self.away(error) from error
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, name)
        (asked,) = client.describe_configs([resource], request_timeout=ASK_S).values()
        try:
            entries = {key: entry.value or "" for key, entry in self._answer(client, asked).items()}
        except kafka.KafkaException as error:  # clients may not be allowed to read the topic's configuration
            self._log.info("Kafka does not tell the settings of topic %s: %s", name, cause_of(error))
            entries = {}
        topic_id = "" if found.topic_id is None else str(found.topic_id)
        compacted = "compact" in entries.get("cleanup.policy", "")
        return Topic(topic_id, len(found.partitions), compacted, int(entries.get("max.message.bytes") or 0))

    def _answer(self, client: Any, asked: Future[Any]) -> Any:
        began_s = time.monotonic()
        while not asked.done():
            client.poll(0.05)  # calls `failed`
            taken_s = time.monotonic() - began_s
            if taken_s > 2 * ASK_S or (self.is_away and taken_s > _AWAY_S):
                raise self.away("no broker can be reached" if self.is_away else f"no answer for {2 * ASK_S:g} s")
        return asked.result()
