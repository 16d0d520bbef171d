"""Decisions of the sink ``mongodb``: ids, what is refused before it is sent, and what answers mean.

No server is there: a collection that answers as MongoDB's bulkWrite does stands in its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.api.connector import Record, RecordRefused, Retry, SinkContext
from magnetar.api.connector_config import read_config
from magnetar.connectors.mongodb_sink import MongodbConfig, MongodbSink
from magnetar.errors import InvalidConfig

pytestmark = pytest.mark.connectors
pymongo: Any = pytest.importorskip("pymongo")

GIVEN = {"mongoUri": "mongodb://127.0.0.1:1/", "database": "d", "collection": "c", "timeout": 0.5}


class Collection:
    """Keeps documents by id, and refuses those whose ``code`` is not 0."""

    def __init__(self) -> None:
        self.documents: dict[Any, Any] = {}
        self.requests: list[tuple[int, bool]] = []
        self.unconfirmed = 0

    def bulk_write(self, actions: Sequence[Any], ordered: bool) -> None:
        self.requests.append((len(actions), ordered))
        wrong = []
        for index, action in enumerate(actions):
            if isinstance(action, pymongo.DeleteOne):
                self.documents.pop(action._filter["_id"], None)
                continue
            assert isinstance(action, pymongo.ReplaceOne)
            assert action._upsert
            document: Any = action._doc
            if code := document.get("code"):
                wrong.append({"index": index, "code": code, "errmsg": "no"})
                if ordered:
                    break
            else:
                self.documents[document["_id"]] = document
        unconfirmed = [{"errmsg": "waiting for replication timed out"}] if self.unconfirmed else []
        self.unconfirmed = 0
        if wrong or unconfirmed:
            raise pymongo.errors.BulkWriteError({"writeErrors": wrong, "writeConcernErrors": unconfirmed})


def opened(**given: Any) -> tuple[MongodbSink, Collection]:
    config = read_config(MongodbConfig, {**GIVEN, **given})
    sink = MongodbSink()
    sink.check(config)
    sink.open(config, cast(SinkContext, SimpleNamespace()))
    sink._client.close()
    sink._collection = collection = Collection()
    return sink, collection


def record(value: dict[str, Any] | bytes, key: str | None = None, place: int = 0) -> Record:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record(data, key=key, topic="t", message_id=f"1:{place}")


def test_ids_are_the_documents_own_the_keys_or_the_places() -> None:
    sink, collection = opened(keyIgnore=False)
    sink.write_batch([record({"_id": 7}, "k"), record({"a": None}, "k"), record({"a": "ä"}, place=3)])
    assert collection.documents == {7: {"_id": 7}, "k": {"_id": "k", "a": None}, "t:1:3": {"_id": "t:1:3", "a": "ä"}}
    sink, collection = opened()
    sink.write_batch([record({}, "k", place=4)])
    assert list(collection.documents) == ["t:1:4"]
    assert collection.requests == [(1, False)]


def test_documents_of_one_id_keep_their_order() -> None:
    sink, collection = opened(keyIgnore=False, nullValueAction="DELETE")
    sink.write_batch([record({"n": 1}, "a"), record({"n": 1}, "b"), record(b"", "a"), record({"n": 2}, "b")])
    assert collection.documents == {"b": {"_id": "b", "n": 2}}
    assert collection.requests == [(4, True)]


@pytest.mark.parametrize("keys", ["abcd", "aaaa"])
def test_refused_documents_are_named_and_the_others_written_once(keys: str) -> None:
    sink, collection = opened(keyIgnore=False)
    values = [{"n": 0}, {"n": 1, "code": 121}, {"n": 2, "code": 11000}, {"n": 3}]
    records = [record(value, key) for value, key in zip(values, keys, strict=True)]
    refused = []
    while True:
        try:
            sink.write_batch(records)
            break
        except RecordRefused as error:
            refused.append(json.loads(records.pop(error.index).value)["n"])
            records = records[error.written :]
    assert refused == [1, 2]
    assert collection.documents[keys[-1]]["n"] == 3
    assert sum(count for count, _ in collection.requests) <= 4 + 2 + 1


@pytest.mark.parametrize("keys", ["ab", "aa"])
def test_a_server_that_steps_down_is_tried_again(keys: str) -> None:
    sink, _ = opened(keyIgnore=False)
    with pytest.raises(Retry, match="code 10107: no"):
        sink.write_batch([record({"code": 10107}, keys[0]), record({"n": 1}, keys[1])])


def test_what_is_not_confirmed_is_written_again() -> None:
    sink, collection = opened()
    records = [record({"n": 1})]
    collection.unconfirmed = 1
    with pytest.raises(Retry, match="not confirmed: waiting for replication"):
        sink.write_batch(records)
    sink.write_batch(records)
    assert len(collection.requests) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"n": 1 << 64}, "8-byte ints"),
        ({"$set": 1}, r"invalid field name '\$set'"),
        ({"a\0b": 1}, "not a valid document"),
        ({"a": "\ud800"}, "not a valid document"),
        (b"[]", "must be a JSON object"),
        (b"", "nullValueAction is FAIL"),
    ],
)
def test_what_is_no_document_is_refused_before_it_is_sent(value: Any, text: str) -> None:
    sink, collection = opened(nullValueAction="FAIL")
    with pytest.raises(RecordRefused, match=text) as refused:
        sink.write_batch([record({"n": 1}), record(value, place=1)])
    assert (refused.value.index, refused.value.written) == (1, 1)
    assert list(collection.documents) == ["t:1:0"]


def test_a_server_that_is_away_is_tried_again() -> None:
    config = read_config(MongodbConfig, GIVEN)
    sink = MongodbSink()
    sink.open(config, cast(SinkContext, SimpleNamespace()))
    with pytest.raises(Retry, match=r"ServerSelectionTimeoutError: 127\.0\.0\.1:1"):
        sink.write_batch([record({"n": 1})])
    sink.close()


def test_writes_are_confirmed_by_the_majority_unless_the_address_says_otherwise() -> None:
    for uri, concern in (
        ("mongodb://127.0.0.1:1/", {"w": "majority", "j": True}),
        ("mongodb://127.0.0.1:1/?w=1", {"w": 1}),
    ):
        sink = MongodbSink()
        sink.open(read_config(MongodbConfig, {**GIVEN, "mongoUri": uri}), cast(SinkContext, SimpleNamespace()))
        assert sink._collection.write_concern.document == concern
        sink.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"mongoUri": "localhost"}, "mongoUri: must start with mongodb://"),
        ({"database": "a b"}, "database 'a b'"),
        ({"collection": ""}, "collection ''"),
        ({"nullValueAction": "DELETE"}, "requires keyIgnore: false"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        MongodbSink().check(read_config(MongodbConfig, {**GIVEN, **change}))


def test_an_address_that_is_none_is_refused_when_it_is_opened() -> None:
    with pytest.raises(InvalidConfig, match="mongoUri"):
        opened(mongoUri="mongodb://host:port/")
