"""The source ``s3``: objects of JSON lines and of Parquet, and files in a directory."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any, ClassVar

import pulsar

from tests.connectors.cases.base import SourceCase
from tests.connectors.servers.base import RealServer
from tests.connectors.servers.s3 import S3

LINES = 500


class S3SourceCase(SourceCase):
    """Compressed objects of JSON lines, with a discovery every second."""

    connector = "s3"
    server: ClassVar[type[RealServer] | None] = S3
    is_ordered = False
    batch: ClassVar[dict[str, Any]] = {
        "discoveryTriggererClassName": "cron",
        "discoveryTriggererConfig": {"__CRON__": "* * * * * *"},
    }
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"path": None}, "path is missing"),
        (
            {"path": "gs://bucket/prefix"},
            "invalid path 'gs://bucket/prefix': expected s3://bucket/prefix or file:///directory",
        ),
        ({"path": "file://relative"}, "expected file:/// and an absolute directory"),
        ({"path": "s3://there-is-none/"}, "NoSuchBucket"),
        ({"accessKeyId": None}, "accessKeyId and secretAccessKey must be set together"),
        ({"endpoint": "http://127.0.0.1:1"}, "retrying"),
        ({"format": "xml"}, "format must be one of lines, json, csv, parquet"),
        ({"sufix": ".gz"}, "sufix"),
    ]

    def __init__(self, server: Any, directory: Path) -> None:
        super().__init__(server, directory)
        self.objects = 0

    @property
    def bucket(self) -> str:
        return f"b-{self.directory.parent.name}".lower().replace("_", "-")[:60].rstrip("-")

    def prepare(self) -> None:
        client = self.server_process.client()
        client.create_bucket(Bucket=self.bucket)
        client.close()

    def configs(self) -> dict[str, object]:
        return {
            "path": f"s3://{self.bucket}/in/",
            "endpoint": self.server_process.url,
            "accessKeyId": "id",
            "secretAccessKey": "secret",
            "format": "json",
        }

    def put(self, name: str, body: bytes) -> None:
        client = self.server_process.client()
        client.put_object(Bucket=self.bucket, Key=f"in/{name}", Body=body)
        client.close()

    def feed(self, records: list[tuple[int, str]]) -> None:
        for begin in range(0, len(records), LINES):
            self.objects += 1
            self.put(f"{self.objects:06d} ü", self.body(records[begin : begin + LINES]))

    def feed_bad(self) -> None:
        self.put("bad", b'{"id": \n')

    def body(self, records: list[tuple[int, str]]) -> bytes:
        lines = (json.dumps({"id": number, "text": text}, ensure_ascii=False) for number, text in records)
        return gzip.compress("".join(f"{line}\n" for line in lines).encode())

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        assert message.properties()["object"].endswith(" ü")
        value = json.loads(message.data())
        return int(value["id"]), value["text"]


class ParquetS3SourceCase(S3SourceCase):
    """Parquet."""

    bad_configs = ()  # type: ignore[assignment]

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "format": "parquet"}

    def feed_bad(self) -> None:
        self.put("bad", b"PAR1, but no more")

    def body(self, records: list[tuple[int, str]]) -> bytes:
        import pyarrow as pa
        from pyarrow import parquet

        out = io.BytesIO()
        parquet.write_table(pa.table({"id": [one[0] for one in records], "text": [one[1] for one in records]}), out)
        return out.getvalue()


class LocalS3SourceCase(S3SourceCase):
    """CSV files in a directory."""

    server = None
    has_target = True
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"path": "file:///there/is/none"}, "is not a directory")
    ]

    @property
    def path(self) -> Path:
        return self.directory / "files"

    def prepare(self) -> None:
        self.path.mkdir()

    def configs(self) -> dict[str, object]:
        return {"path": f"file://{self.path}", "format": "csv", "suffix": " ü"}

    def take_away(self) -> None:
        """Replace the directory with a file."""
        self.path.rename(self.directory / "elsewhere")
        self.path.touch()

    def bring_back(self) -> None:
        self.path.unlink()
        (self.directory / "elsewhere").rename(self.path)

    def put(self, name: str, body: bytes) -> None:
        (self.directory / "new").write_bytes(body)
        (self.directory / "new").rename(self.path / name)

    def feed_bad(self) -> None:
        self.put("bad ü", b'id,text\n1,"\xff\n')

    def body(self, records: list[tuple[int, str]]) -> bytes:
        import csv

        out = io.StringIO(newline="")
        csv.writer(out).writerows([("id", "text"), *records])
        return out.getvalue().encode()
