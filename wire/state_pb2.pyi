from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Position(_message.Message):
    __slots__ = ("ledger_id", "entry_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class Changes(_message.Message):
    __slots__ = ("kinds", "keys", "data", "amounts")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    kinds: bytes
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    data: _containers.RepeatedScalarFieldContainer[bytes]
    amounts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kinds: _Optional[bytes] = ..., keys: _Optional[_Iterable[bytes]] = ..., data: _Optional[_Iterable[bytes]] = ..., amounts: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("table", "keys", "writer")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    table: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    writer: bytes
    def __init__(self, table: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ..., writer: _Optional[bytes] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("kinds", "data", "numbers", "versions", "generation")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    kinds: bytes
    data: _containers.RepeatedScalarFieldContainer[bytes]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    generation: int
    def __init__(self, kinds: _Optional[bytes] = ..., data: _Optional[_Iterable[bytes]] = ..., numbers: _Optional[_Iterable[int]] = ..., versions: _Optional[_Iterable[int]] = ..., generation: _Optional[int] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("table", "writer", "sequence", "changes", "epoch")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    table: str
    writer: bytes
    sequence: int
    changes: Changes
    epoch: int
    def __init__(self, table: _Optional[str] = ..., writer: _Optional[bytes] = ..., sequence: _Optional[int] = ..., changes: _Optional[_Union[Changes, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class OutboxEntry(_message.Message):
    __slots__ = ("topic", "sequence_id", "messages", "payload", "position")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    sequence_id: int
    messages: int
    payload: bytes
    position: Position
    def __init__(self, topic: _Optional[str] = ..., sequence_id: _Optional[int] = ..., messages: _Optional[int] = ..., payload: _Optional[bytes] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("table", "function_uuid", "partition")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_UUID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    table: str
    function_uuid: str
    partition: str
    def __init__(self, table: _Optional[str] = ..., function_uuid: _Optional[str] = ..., partition: _Optional[str] = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ("position", "outbox")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    position: Position
    outbox: _containers.RepeatedCompositeFieldContainer[OutboxEntry]
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., outbox: _Optional[_Iterable[_Union[OutboxEntry, _Mapping]]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("table", "function_uuid", "partition", "expected", "new", "changes", "outbox", "published", "writer", "epoch")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_UUID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    table: str
    function_uuid: str
    partition: str
    expected: Position
    new: Position
    changes: Changes
    outbox: _containers.RepeatedCompositeFieldContainer[OutboxEntry]
    published: Position
    writer: bytes
    epoch: int
    def __init__(self, table: _Optional[str] = ..., function_uuid: _Optional[str] = ..., partition: _Optional[str] = ..., expected: _Optional[_Union[Position, _Mapping]] = ..., new: _Optional[_Union[Position, _Mapping]] = ..., changes: _Optional[_Union[Changes, _Mapping]] = ..., outbox: _Optional[_Iterable[_Union[OutboxEntry, _Mapping]]] = ..., published: _Optional[_Union[Position, _Mapping]] = ..., writer: _Optional[bytes] = ..., epoch: _Optional[int] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("table", "key", "data", "expected_version", "epoch")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    table: str
    key: bytes
    data: bytes
    expected_version: int
    epoch: int
    def __init__(self, table: _Optional[str] = ..., key: _Optional[bytes] = ..., data: _Optional[bytes] = ..., expected_version: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class PutResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class KeepRequest(_message.Message):
    __slots__ = ("table", "version")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    table: str
    version: int
    def __init__(self, table: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("table", "version", "epoch")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    table: str
    version: int
    epoch: int
    def __init__(self, table: _Optional[str] = ..., version: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("is_kept",)
    IS_KEPT_FIELD_NUMBER: _ClassVar[int]
    is_kept: bool
    def __init__(self, is_kept: _Optional[bool] = ...) -> None: ...

class KeptRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class KeptResponse(_message.Message):
    __slots__ = ("versions",)
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, versions: _Optional[_Iterable[int]] = ...) -> None: ...

class DropRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class TablesRequest(_message.Message):
    __slots__ = ("prefix", "after")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class TablesResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class StatisticsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatisticsResponse(_message.Message):
    __slots__ = ("tables", "database_bytes", "requests_queued", "transactions", "rows_written", "failure")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    DATABASE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    tables: int
    database_bytes: int
    requests_queued: int
    transactions: int
    rows_written: int
    failure: str
    def __init__(self, tables: _Optional[int] = ..., database_bytes: _Optional[int] = ..., requests_queued: _Optional[int] = ..., transactions: _Optional[int] = ..., rows_written: _Optional[int] = ..., failure: _Optional[str] = ...) -> None: ...
