"""The ``mongodb`` sink writes documents to a collection.

A document's ``_id`` is the ``_id`` in the value, the record key, or the record's position in its topic. The document
replaces any document with the same ID, so redelivering a record changes nothing. A batch is a single bulk request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .documents import Outcome, Outcomes, document_of
from .libraries import need

_TRY_AGAIN = frozenset(
    (6, 7, 13, 18, 24, 50, 64, 89, 91, 112, 189, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436)
)
"""Codes of errors that the document did not cause, such as no primary, access denied, lock contention, or a timeout."""


@dataclass
class MongodbConfig:
    """Settings of the ``mongodb`` sink."""

    mongo_uri: str = option(
        "MongoDB URI, such as mongodb://user:password@host:27017/?replicaSet=rs0.", secret=True, aliases=("uri",)
    )
    database: str = option("Database name.")
    collection: str = option("Collection name; created with the first document.")
    key_ignore: bool = option(
        "Whether to ignore the record key instead of using it as the _id of documents without one.", default=True
    )
    null_value_action: Literal["IGNORE", "DELETE", "FAIL"] = option(
        "Action for records without a value: ignore the record, delete the document with its key, or reject the "
        "record.",
        default="IGNORE",
    )
    batch_size: int = option("Maximum number of documents per request.", default=1000, limits=(1, 10_000))
    batch_time_ms: int = option(
        "Maximum time to wait for more records, in milliseconds.", default=100, limits=(0, 60_000)
    )
    timeout: float = option(
        "Timeout for finding a server and for responses, in seconds.", default=30.0, limits=(0.1, 3600)
    )


class MongodbSink(Sink):
    """Writes JSON objects as documents to a MongoDB collection."""

    config = MongodbConfig

    def __init__(self) -> None:
        self._outcomes = Outcomes()

    def check(self, config: MongodbConfig) -> None:
        """Validate the configuration."""
        if not config.mongo_uri.startswith(("mongodb://", "mongodb+srv://")):
            raise InvalidConfig("invalid mongoUri: must start with mongodb:// or mongodb+srv://")
        for key, name, wrong in (
            ("database", config.database, '/\\. "$\0'),
            ("collection", config.collection, "$\0"),
        ):
            if not name or any(character in name for character in wrong):
                raise InvalidConfig(f"invalid {key} {name!r}: must not be empty or contain any of {wrong!r}")
        if config.null_value_action == "DELETE" and config.key_ignore:
            raise InvalidConfig(
                "nullValueAction DELETE requires keyIgnore: false, as the key identifies the document to delete"
            )

    def not_effectively_once(self, config: MongodbConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return ""

    def batching(self, config: MongodbConfig) -> Batching:
        """Return the batch limits."""
        return Batching(config.batch_size, 16 << 20, config.batch_time_ms / 1000)

    def open(self, config: MongodbConfig, context: SinkContext) -> None:
        """Open the connector."""
        library = need("mongodb", "pymongo")
        self._config = config
        self._library = library
        self._bson: Any = need("mongodb", "bson")
        milliseconds = int(config.timeout * 1000)
        try:
            self._client = library.MongoClient(
                config.mongo_uri,
                appname="magnetar",
                serverSelectionTimeoutMS=milliseconds,
                connectTimeoutMS=milliseconds,
                socketTimeoutMS=milliseconds,
            )
        except (library.errors.ConfigurationError, library.errors.InvalidURI, ValueError) as error:
            raise InvalidConfig(f"invalid mongoUri: {error}") from error
        # By default, a write is confirmed once it survives the loss of a server; the URI may change that.
        given = self._client.write_concern
        durable = given if given.document else library.WriteConcern("majority", j=True)
        database = self._client.get_database(config.database)
        self._collection = database.get_collection(config.collection, write_concern=durable)

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        self._outcomes.write(records, self._write)

    def close(self) -> None:
        """Close the connector."""
        if hasattr(self, "_client"):
            self._client.close()

    def _write(self, records: Sequence[Record]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(records)
        actions: list[tuple[int, Any]] = []
        ids: list[str] = []
        for index, record in enumerate(records):
            try:
                found = self._action(record)
            except RecordRefused as error:
                outcomes[index] = str(error)
                continue
            if found is not None:
                ids.append(repr(found[0]))
                actions.append((index, found[1]))
        # Documents with the same ID must be written in order. An ordered write stops at the first rejected document.
        self._send(actions, outcomes, is_ordered=len(set(ids)) < len(ids))
        return outcomes

    def _action(self, record: Record) -> tuple[Any, Any] | None:
        """Return a record's ID and action, or None if the record is skipped."""
        config, library = self._config, self._library
        if record.value in (None, b"", ""):
            if config.null_value_action == "IGNORE":
                return None
            if config.null_value_action == "FAIL":
                raise RecordRefused("record has no value, and nullValueAction is FAIL")
            if record.key is None:
                raise RecordRefused("record has no value, and no key that identifies the document to delete")
            return record.key, library.DeleteOne({"_id": record.key})
        document = document_of(record)
        if dollar := next((key for key in document if key.startswith("$")), None):
            raise RecordRefused(f"invalid field name {dollar!r}: top-level field names must not start with $")
        if "_id" not in document:
            by_key = not config.key_ignore and record.key is not None
            document = {"_id": record.key if by_key else f"{record.topic}:{record.message_id}", **document}
        try:
            self._bson.encode(document)  # fails for numbers over 64 bits, NUL in a key, deep nesting, invalid UTF-8
            return document["_id"], library.ReplaceOne({"_id": document["_id"]}, document, upsert=True)
        except (self._bson.errors.BSONError, OverflowError, ValueError, TypeError, RecursionError) as error:
            raise RecordRefused(f"value is not a valid document: {error}") from error

    def _send(self, actions: Sequence[tuple[int, Any]], outcomes: list[Outcome], *, is_ordered: bool) -> None:
        """Write documents, and set the outcomes of documents that were not written."""
        errors = self._library.errors
        while actions:
            try:
                self._collection.bulk_write([action for _, action in actions], ordered=is_ordered)
                return
            except errors.BulkWriteError as error:
                wrong = error.details.get("writeErrors") or []
                for one in wrong:
                    outcomes[actions[one["index"]][0]] = _outcome(one)
                if unconfirmed := error.details.get("writeConcernErrors"):
                    self._put_off(actions, outcomes, f"written but not confirmed: {unconfirmed[0].get('errmsg')}")
                    return
                if not is_ordered:
                    return
                last = wrong[0]["index"]
                later = outcomes[actions[last][0]]
                actions = actions[last + 1 :]
                if isinstance(later, Retry):
                    self._put_off(actions, outcomes, str(later))
                    return
            except errors.DocumentTooLarge as error:
                if len(actions) == 1:
                    outcomes[actions[0][0]] = str(error)
                    return
                for action in actions:
                    self._send([action], outcomes, is_ordered=True)
                return
            except errors.PyMongoError as error:
                self._put_off(actions, outcomes, f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
                return

    def _put_off(self, actions: Sequence[tuple[int, Any]], outcomes: list[Outcome], cause: str) -> None:
        for index, _ in actions:
            outcomes[index] = outcomes[index] or Retry(cause)


def _outcome(error: dict[str, Any]) -> Outcome:
    text = f"code {error.get('code')}: {' '.join(str(error.get('errmsg')).split())[:400]}"
    return Retry(text) if error.get("code") in _TRY_AGAIN else text
