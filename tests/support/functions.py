"""Deploy functions through the REST interface, as other clients do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx


class Functions:
    """The functions of public/default at one web address."""

    def __init__(self, web_url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = f"{web_url}/admin/v3/functions/public/default/"
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=60)  # 30 s is what an answer may take

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Functions:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def create(self, name: str, source: Path | str, config: dict[str, Any]) -> httpx.Response:
        """Create a function; `source` is a file or the code of a module `<name>.py`. The response is not checked."""
        return self._send("POST", name, source, config)

    def update(self, name: str, source: Path | str, config: dict[str, Any]) -> httpx.Response:
        return self._send("PUT", name, source, config)

    def delete(self, name: str) -> None:
        self._http.delete(name).raise_for_status()

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of instance 0."""
        answer = self._http.get(f"{name}/status").raise_for_status().json()
        instances = answer["instances"]
        return dict(instances[0]["status"]) if instances else {"running": False, "error": "", "numRestarts": 0}

    def post(self, name: str, verb: str) -> None:
        self._http.post(f"{name}/{verb}").raise_for_status()

    def _send(self, method: str, name: str, source: Path | str, config: dict[str, Any]) -> httpx.Response:
        if isinstance(source, Path):
            file_name, content = source.name, source.read_bytes()
        else:
            file_name, content = f"{name}.py", source.encode()
        full = {
            "tenant": "public",
            "namespace": "default",
            "name": name,
            "runtime": "PYTHON",
            "py": file_name,
            **config,
        }
        return self._http.request(
            method,
            name,
            files={
                "functionConfig": (None, json.dumps(full), "application/json"),
                "data": (file_name, content, "application/octet-stream"),
            },
        )
