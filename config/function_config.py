"""What a person asks of a function: `FunctionConfig`, the values inside it, and the way from JSON to a record and back.

Design: JSON becomes a frozen `FunctionConfig` (`config_fields`), in which None always means "not sent". Registration
fills the defaults and checks the rules (`config_rules`); an update first merges what was sent into what is stored
(`config_merge`); the result becomes the `FunctionDetails` that the metadata topic keeps (`config_records`), and `get`
answers from those. A setting that this version cannot honour is refused by name: nothing is taken and ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ATLEAST_ONCE = "ATLEAST_ONCE"
ATMOST_ONCE = "ATMOST_ONCE"
EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"
MANUAL = "MANUAL"
GUARANTEES = (ATLEAST_ONCE, ATMOST_ONCE, EFFECTIVELY_ONCE, MANUAL)
POSITIONS = ("Latest", "Earliest")
PROCESS = "process"
SPARK = "spark"
RUNTIME_ENVIRONMENTS = (PROCESS, "thread", SPARK)
COMPRESSIONS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")

DEFAULT_COMPRESSION = "LZ4"
DEFAULT_CPU = 1.0
DEFAULT_RAM_BYTES = 1 << 30
MIN_RAM_BYTES = 32 << 20
DEFAULT_DISK_BYTES = 10 << 30
MAX_PARALLELISM = 1000
"""Most instances of one function; a typing error must not start ten thousand processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """How one input topic is read."""

    schema_type: str | None = None
    serde_class_name: str | None = None
    is_regex_pattern: bool = False
    schema_properties: Mapping[str, str] = field(default_factory=dict)
    consumer_properties: Mapping[str, str] = field(default_factory=dict)
    receiver_queue_size: int | None = None
    crypto_config: Mapping[str, Any] | None = None
    pool_messages: bool = False
    payload_processor: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec:
    """How the output topic is written."""

    max_pending_messages: int | None = None
    max_pending_messages_across_partitions: int | None = None
    use_thread_local_producers: bool = False
    crypto_config: Mapping[str, Any] | None = None
    batch_builder: str | None = None
    compression_type: str | None = None
    batching_config: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one instance may use: cores, bytes of memory, bytes of disk."""

    cpu: float | None = None
    ram: int | None = None
    disk: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionConfig:
    """Everything a request may say about a function; None means that it does not say.

    The names follow the JSON names of Pulsar's FunctionConfig. `input_specs` holds the inputs of all five ways in which
    JSON may give them; `inputs_sent` only tells whether any was given, for the rules of an update.
    """

    tenant: str | None = None
    namespace: str | None = None
    name: str | None = None
    class_name: str | None = None
    input_specs: Mapping[str, ConsumerSpec] = field(default_factory=dict)
    output: str | None = None
    producer: ProducerSpec | None = None
    output_schema_type: str | None = None
    output_serde_class_name: str | None = None
    log_topic: str | None = None
    processing_guarantees: str | None = None
    retain_ordering: bool | None = None
    retain_key_ordering: bool | None = None
    forward_source_message_property: bool | None = None
    user_config: Mapping[str, Any] | None = None
    secrets: Mapping[str, Any] | None = None
    runtime: str | None = None
    runtime_env: str | None = None
    min_partitions: int | None = None
    """Of a Spark function: into how many tasks the entries of a run are cut at least."""
    auto_ack: bool | None = None
    max_message_retries: int | None = None
    dead_letter_topic: str | None = None
    sub_name: str | None = None
    subscription_position: str | None = None
    parallelism: int | None = None
    resources: Resources | None = None
    window_config: Mapping[str, Any] | None = None
    timeout_ms: int | None = None
    cleanup_subscription: bool | None = None
    runtime_flags: str | None = None
    file_name: str | None = None
    """Last part of `py`, the package's path on the client's disk; tells the file's name when an upload does not."""
    sent_fqfn: str | None = None
    """The name that the JSON gives as `fqfn`; it must be the function's name or be left out."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Fields that were sent but cannot be honoured, with the reason; raised after the rules that are Pulsar's."""

    @property
    def fqfn(self) -> str:
        """tenant/namespace/name."""
        return f"{self.tenant}/{self.namespace}/{self.name}"
