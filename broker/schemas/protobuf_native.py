"""PROTOBUF_NATIVE schemas, which contain a message type's descriptor in JSON.

Source: Pulsar 4.0, ProtobufNativeSchemaData and ProtobufNativeSchemaUtils.
"""

from __future__ import annotations

import base64
import json

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_database import DescriptorDatabase
from google.protobuf.descriptor_database import Error as DatabaseError
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from .model import InvalidDefinition

_FAILED = "deserialize ProtobufNative Schema failed"


def root_message(data: bytes) -> Descriptor:
    """Return the message type that a definition describes.

    Raises:
        InvalidDefinition: the definition does not describe a message type.
    """
    try:
        value = json.loads(data.decode())
        files = FileDescriptorSet.FromString(base64.b64decode(value["fileDescriptorSet"], validate=True))
        database = DescriptorDatabase()  # resolves imports regardless of their order
        for file in files.file:
            database.Add(file)
        pool = DescriptorPool(database)
        root = pool.FindMessageTypeByName(value["rootMessageTypeName"])
        if root.file.name != value["rootFileDescriptorName"]:
            raise KeyError(f"{root.full_name} is in {root.file.name}")
        return root
    except (DecodeError, DatabaseError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(_FAILED) from error
