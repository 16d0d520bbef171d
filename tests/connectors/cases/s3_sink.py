"""The sink ``s3``, in JSON lines and in Parquet."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any, ClassVar

from tests.connectors.cases.base import SinkCase
from tests.connectors.servers.s3 import S3


class S3SinkCase(SinkCase):
    """Compressed objects of JSON lines."""

    connector = "s3"
    server = S3
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"path": None}, "path is missing"),
        ({"path": "bucket/prefix"}, "invalid path 'bucket/prefix': expected s3://bucket/prefix"),
        ({"path": "s3://there-is-none/"}, "NoSuchBucket"),
        ({"secretAccessKey": None}, "accessKeyId and secretAccessKey must be set together"),
        ({"endpoint": "http://127.0.0.1:1"}, "retrying"),
        ({"endpoint": "127.0.0.1"}, "invalid endpoint '127.0.0.1': expected a URL starting with http://"),
        ({"format": "parquet", "compression": "gzip"}, "compression does not apply to format parquet"),
        ({"format": "avro"}, "format must be one of json, lines, csv, parquet"),
        ({"batchTime": 1}, "batchTime"),
    ]

    @property
    def bucket(self) -> str:
        return f"b-{self.directory.parent.name}".lower().replace("_", "-")[:60].rstrip("-")

    def prepare(self) -> None:
        client = self.server_process.client()
        client.create_bucket(Bucket=self.bucket)
        client.close()

    def configs(self) -> dict[str, object]:
        return {
            "path": f"s3://{self.bucket}/records/",
            "endpoint": self.server_process.url,
            "accessKeyId": "id",
            "secretAccessKey": "secret",
            "batchTimeMs": 200,
            "batchSize": 1000,
            "compression": "gzip",
        }

    def bad_record(self) -> bytes | None:
        return b'{"id": 1,'

    def read_back(self) -> list[tuple[int, str]]:
        client = self.server_process.client()
        found: list[tuple[int, str]] = []
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
            for one in page.get("Contents", ()):
                assert one["Key"].startswith("records/public/default/sink-s3-")
                found += self.records_of(client.get_object(Bucket=self.bucket, Key=one["Key"])["Body"].read())
        client.close()
        return found

    def records_of(self, body: bytes) -> list[tuple[int, str]]:
        values = [json.loads(line) for line in gzip.decompress(body).decode().removesuffix("\n").split("\n")]
        assert all(value["nothing"] is None for value in values)
        return [(value["id"], value["text"]) for value in values]


class ExactS3SinkCase(S3SinkCase):
    """Parquet objects, with EFFECTIVELY_ONCE."""

    processing_guarantees = "EFFECTIVELY_ONCE"
    bad_configs = ()  # type: ignore[assignment]

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "format": "parquet", "compression": "none"}

    def bad_record(self) -> bytes | None:
        return b"[1, 2]"

    def records_of(self, body: bytes) -> list[tuple[int, str]]:
        from pyarrow import parquet

        return [(row["id"], row["text"]) for row in parquet.read_table(io.BytesIO(body)).to_pylist()]
