"""Check of schemas: refuses every schema but bytes."""

from __future__ import annotations

from ...errors import NotAllowed
from ...wire.pulsar_api_pb2 import Schema


def check_schema(schema: Schema) -> None:
    """Raise for a schema that would have to be stored.

    Raises:
        NotAllowed: names its type.
    """
    # `None` is the protocol's word for no schema, AutoConsume only asks for whatever there is.
    if schema.type not in (Schema.Type.Value("None"), Schema.AutoConsume):
        kind = Schema.Type.Name(schema.type)
        raise NotAllowed(f"schema of type {kind} is not supported by this broker yet; send bytes")
