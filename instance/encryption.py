"""Encryption of one instance: key readers of its `cryptoConfig`s, and keys of inputs and outputs.

Everything that the instance writes is encrypted with the keys of `producerConfig`: outputs, messages published through
the context, dead letters and the log topic. Without such keys (sinks never have any), letters, logs and everything that
a sink writes use the `encryptionKeys` of the inputs.

With action FAIL, the default even without a `cryptoConfig`, an entry that cannot be decrypted is never lost. On an
ordered subscription later entries must not be processed: the instance ends, and its status has the reason. On others
the entry is redelivered later, and processing continues.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..client.config import ConsumerConfig, ConsumerCryptoFailureAction, ProducerConfig
from ..client.encryption.keys import CryptoKeyReader, EncryptionKey, FileKeyReader, NamedKeyReader
from ..config.crypto_config import FILES, READERS
from ..errors import CryptoError, FunctionLoadError
from ..wire.functions_pb2 import CryptoSpec, FunctionDetails
from ..wire.topic_name import parse_topic_name
from .loading.loader import Home, find_object
from .spec import InstanceSpec
from .stats import InstanceStats, now_ms

if TYPE_CHECKING:
    from ..client.encryption.encryption import Encryption

LOGGED_EVERY = 1000
"""Undecryptable entries with the same reason per log line."""
LEAST_PAUSE_S = 1.0
_NO_PACKAGE = Path()  # a built-in connector has no package


class InstanceEncryption:
    """The key readers of one instance; loaded on the function's thread, then used on the event loop.

    Attributes:
        sealing: encrypts entries that are sealed before sending, in any thread; None without encryption, or before
            `open_sealing`.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        stats: InstanceStats,
        log: Callable[[str, str], None],
        end: Callable[[str], None],
    ) -> None:
        """Create the encryption of an instance; `load` creates the readers.

        Args:
            spec: the instance's spec.
            stats: counts undecryptable entries.
            log: writes a log line, given level and text.
            end: ends the instance with a reason.
        """
        details = spec.details
        self.sealing: Encryption | None = None
        self._spec = spec
        self._stats = stats
        self._log = log
        self._end = end
        self._inputs = {topic: one.cryptoSpec for topic, one in details.source.inputSpecs.items() if _is_set(one)}
        self._output = details.sink.producerSpec.cryptoSpec if _is_set(details.sink.producerSpec) else None
        shared = (one for _, one in sorted(self._inputs.items()) if one.producerEncryptionKeyName)
        self._letters = self._output or next(shared, None)
        if details.componentType == FunctionDetails.SINK:
            self._output = self._letters
        self._readers: dict[bytes, CryptoKeyReader] = {}
        self._undecryptable = 0
        self._reason = ""

    def load(self, home: Home) -> None:
        """Create the key readers, on the function's thread.

        Raises:
            FunctionLoadError: a class is missing or is not a key reader.
            Exception: a class of the package raised an exception.
        """
        for crypto in (*self._inputs.values(), self._output, self._letters):
            key = _key_of(crypto)
            if crypto is not None and key not in self._readers:
                self._readers[key] = _load_reader(crypto, home, self._spec)

    # -- writing --------------------------------------------------------------------------------------------------

    def writing(self, config: ProducerConfig) -> ProducerConfig:
        """Return the producer config of outputs and published messages, with encryption if configured."""
        return self._encrypted(config, self._output)

    def letters(self, config: ProducerConfig) -> ProducerConfig:
        """Return the producer config of dead letters and log lines, with encryption if configured."""
        return self._encrypted(config, self._letters)

    def _encrypted(self, config: ProducerConfig, crypto: CryptoSpec | None) -> ProducerConfig:
        if crypto is None:
            return config
        return replace(
            config,
            encryption_keys=tuple(crypto.producerEncryptionKeyName),
            crypto_key_reader=self._readers[_key_of(crypto)],  # sending requires a reader
            crypto_failure_action="SEND" if crypto.producerCryptoFailureAction == CryptoSpec.SEND else "FAIL",
        )

    async def open_sealing(self) -> None:
        """Create the data key for entries that are sealed before sending, if outputs are encrypted.

        Cancellation: safe.

        Raises:
            CryptoError: a public key is missing, and sending unencrypted entries is not allowed.
        """
        if self._output is None or self.sealing is not None:
            return
        from ..client.encryption.encryption import Encryption  # import the library only if encryption is used

        config = self.writing(ProducerConfig())
        assert config.crypto_key_reader is not None
        sealing = Encryption(
            config.encryption_keys, config.crypto_key_reader, sends_clear=config.crypto_failure_action == "SEND"
        )
        await sealing.open()
        self.sealing = sealing

    # -- reading --------------------------------------------------------------------------------------------------

    def reading(self, config: ConsumerConfig, topic: str) -> ConsumerConfig:
        """Return the consumer config of an input, with its keys and the handling of undecryptable entries."""
        crypto = self._inputs.get(topic)
        action: ConsumerCryptoFailureAction = "FAIL"
        if crypto is not None:
            name = CryptoSpec.FailureAction.Name(crypto.consumerCryptoFailureAction)
            action = cast(ConsumerCryptoFailureAction, name)
        is_ordered = config.type in ("Failover", "Exclusive")
        pause_s = max(config.negative_ack_delay_ms / 1000, LEAST_PAUSE_S)

        def undecryptable(name: str, position: tuple[int, int], why: str) -> float | None:
            return self._undecrypted(name, position, why, action, None if is_ordered else pause_s)

        return replace(
            config,
            crypto_key_reader=None if crypto is None else self._readers[_key_of(crypto)],
            crypto_failure_action=action,
            on_undecryptable=undecryptable,
        )

    def _undecrypted(
        self,
        topic: str,
        position: tuple[int, int],
        why: str,
        action: ConsumerCryptoFailureAction,
        pause_s: float | None,
    ) -> float | None:
        """Count and log an undecryptable entry; return the pause until redelivery, or None if the instance ends."""
        reason = why.partition(": ")[2] or why
        text = f"{topic}: {why}"
        if action == "DISCARD":
            text += "; discarding it as set by consumerCryptoFailureAction"
        elif pause_s is None:
            text += f"; later entries wait for it: {_remedy(topic, position)}"
        else:
            text += f"; redelivering it in {pause_s:g} s: set its key in inputSpecs[…].cryptoConfig"
        self._undecryptable += 1
        self._stats.system_exception(text, now_ms())
        if reason != self._reason or self._undecryptable % LOGGED_EVERY == 0:
            self._reason = reason
            self._log("ERROR", f"{text} ({self._undecryptable} so far)")
        if action == "FAIL" and pause_s is None:
            self._end(text)
        return pause_s


def _is_set(spec: Any) -> bool:
    return bool(spec.HasField("cryptoSpec"))


def _key_of(crypto: CryptoSpec | None) -> bytes:
    """Return a key that is equal for configs that can share a reader."""
    if crypto is None:
        return b""
    return json.dumps([crypto.cryptoKeyReaderClassName, crypto.cryptoKeyReaderConfig]).encode()


def _remedy(topic: str, position: tuple[int, int]) -> str:
    name = parse_topic_name(topic)
    partition = f":{name.partition}" if name.partition >= 0 else ""
    return (
        "set its key in inputSpecs[…].cryptoConfig (functions update), or skip the entry (functions reset-cursor"
        f" --topic {name.base.text} --message-id {position[0]}:{position[1] + 1}{partition})"
    )


def _load_reader(crypto: CryptoSpec, home: Home, spec: InstanceSpec) -> CryptoKeyReader:
    class_name = crypto.cryptoKeyReaderClassName or "pulsar.CryptoKeyReader"  # as in Pulsar's Python instance
    what = f"cryptoKeyReaderClassName {class_name}"
    arguments = json.loads(crypto.cryptoKeyReaderConfig or "{}")
    if (kind := READERS.get(class_name)) is not None:
        if kind == FILES:
            return FileKeyReader(arguments.get("public_key_path", ""), arguments.get("private_key_path", ""))
        return NamedKeyReader(**arguments)
    if spec.package == _NO_PACKAGE:
        raise FunctionLoadError(
            f"{what} requires a package, which an installed connector does not have: use one of {', '.join(READERS)}"
        )
    module_name, _, attribute = class_name.rpartition(".")
    found = find_object(home, module_name, attribute, what)
    if not inspect.isclass(found):
        raise FunctionLoadError(f"{what} names a {type(found).__name__}, not a class")
    with home.loading.step(f"creating an instance of {what}"):
        reader: Any = found(**arguments)
    for method in ("get_public_key", "get_private_key"):
        if not callable(getattr(reader, method, None)):
            raise FunctionLoadError(
                f"{what} has no method {method}(name, metadata): define it to return the PEM of a key as bytes"
            )
    return PackageKeyReader(reader, class_name)


class PackageKeyReader:
    """A key reader of a package, whose methods may return a PEM instead of an `EncryptionKey`."""

    def __init__(self, reader: CryptoKeyReader, class_name: str) -> None:
        """Wrap a reader; ``class_name`` appears in errors."""
        self._reader = reader
        self._class_name = class_name

    def get_public_key(self, name: str, metadata: Any) -> EncryptionKey:
        """Return the public key; raises CryptoError if the reader returns an invalid value."""
        return self._checked(self._reader.get_public_key(name, metadata), "get_public_key")

    def get_private_key(self, name: str, metadata: Any) -> EncryptionKey:
        """Return the private key; raises CryptoError if the reader returns an invalid value."""
        return self._checked(self._reader.get_private_key(name, metadata), "get_private_key")

    def _checked(self, found: Any, method: str) -> EncryptionKey:
        if isinstance(found, str):
            found = found.encode()
        if isinstance(found, bytes):
            return EncryptionKey(found)
        key, metadata = getattr(found, "key", None), getattr(found, "metadata", None) or {}
        if not isinstance(key, bytes):
            raise CryptoError(
                f"{method} of {self._class_name} returned {type(found).__name__}: expected the PEM as bytes, or an"
                " EncryptionKey"
            )
        return EncryptionKey(key, dict(metadata))
