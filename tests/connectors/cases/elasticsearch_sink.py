"""The sink ``elasticsearch``, on OpenSearch."""

from __future__ import annotations

from typing import Any, ClassVar

import httpx

from tests.connectors.cases.base import SinkCase
from tests.connectors.servers.opensearch import OpenSearch

PAGE = 2000


class ElasticsearchSinkCase(SinkCase):
    """Documents whose IDs are derived from message positions."""

    connector = "opensearch"
    server = OpenSearch
    is_exact = True
    seconds = 240.0
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"elasticSearchUrl": None}, "elasticSearchUrl is missing"),
        (
            {"elasticSearchUrl": "localhost:9200"},
            "invalid elasticSearchUrl 'localhost:9200': expected a URL starting with http://",
        ),
        ({"elasticSearchUrl": "http://127.0.0.1:1"}, "retrying"),
        ({"indexName": "Large"}, "invalid indexName 'Large': must be lower case"),
        ({"indexName": "a%{+QQ}"}, "indexName: unknown date field 'QQ'"),
        (
            {"token": "t", "apiKey": "k"},
            "multiple credentials: set only one of username with password, token, or apiKey",
        ),
        ({"keyIgnore": False, "primaryFields": "id"}, "primaryFields requires keyIgnore"),
        ({"nullValueAction": "DELETE", "keyIgnore": True}, "nullValueAction DELETE requires keyIgnore: false"),
        ({"bulkActions": "many"}, "bulkActions must be a whole number"),
        ({"schemaEnable": True}, "schemaEnable cannot be set to anything but false: "),
    ]

    @property
    def index(self) -> str:
        return f"i-{self.directory.parent.name}".lower()

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        url = f"{self.server_process.url}/{path}"
        answer = httpx.request(method, url, json=body, trust_env=False, timeout=60)
        return answer.raise_for_status().json()

    def prepare(self) -> None:
        properties = {"id": {"type": "long"}, "text": {"type": "text", "index": False}}
        self.request("PUT", self.index, {"mappings": {"dynamic": "strict", "properties": properties}})

    def configs(self) -> dict[str, object]:
        return {"elasticSearchUrl": self.server_process.url, "indexName": self.index}

    def bad_record(self) -> bytes | None:
        return b'{"id": "no number"}'

    def read_back(self) -> list[tuple[int, str]]:
        self.request("POST", f"{self.index}/_refresh")
        found: list[tuple[int, str]] = []
        after: dict[str, Any] = {}
        while True:
            body = {"size": PAGE, "sort": [{"id": "asc"}, {"_seq_no": "asc"}], **after}
            hits = self.request("POST", f"{self.index}/_search", body)["hits"]["hits"]
            if not hits:
                return found
            found += [(hit["_source"]["id"], hit["_source"]["text"]) for hit in hits]
            assert all("nothing" not in hit["_source"] for hit in hits)
            after = {"search_after": hits[-1]["sort"]}


class KeyedElasticsearchSinkCase(ElasticsearchSinkCase):
    """Documents with keys as IDs, in an index that the sink creates, with EFFECTIVELY_ONCE."""

    connector = "elasticsearch"
    processing_guarantees = "EFFECTIVELY_ONCE"
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"indexName": "a%{+yyyy}"}, "cannot be EFFECTIVELY_ONCE")
    ]

    def key(self, number: int) -> str | None:
        return f"schlüssel-{number}"

    def prepare(self) -> None:
        """Create nothing: the sink creates the index."""

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "keyIgnore": False, "createIndexIfNeeded": True, "compressionEnabled": True}
