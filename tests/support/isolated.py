"""Functions of a tenant on a worker that isolates user code, and code that they are told to run."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from .servers import Server
from .waiting import wait_for

USERS = ("daemon", "games")
"""Of two tenants: Debian has them everywhere, each with a group of its own, and nothing runs as one of them."""
TENANTS = ("one", "two")
OBEYS = """
import json
def process(input, context):
    space = {"context": context}
    try:
        exec(input, space)
        return json.dumps(space.get("result"), default=repr)
    except BaseException as error:
        return json.dumps(f"{type(error).__name__}: {error}")
"""


Run = Callable[[str], Any]


class Deployed:
    """The functions of one tenant, as its users deploy them."""

    def __init__(self, server: Server, tenant: str) -> None:
        self.tenant = tenant
        self.server = server
        self.http = httpx.Client(base_url=f"{server.web_url}/admin/v3/functions/{tenant}/code/", timeout=60)

    def __enter__(self) -> Deployed:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.http.close()

    def create(self, name: str, package: bytes | str = OBEYS, file_name: str = "", **config: Any) -> httpx.Response:
        content = package.encode() if isinstance(package, str) else package
        full = {
            "runtime": "PYTHON", "className": f"{name}.process", "inputs": [f"persistent://{self.tenant}/code/{name}-in"],
            "output": f"persistent://{self.tenant}/code/{name}-out", "autoAck": True, **config,
        }  # fmt: skip
        return self.http.post(
            name,
            files={
                "functionConfig": (None, json.dumps(full), "application/json"),
                "data": (file_name or f"{name}.py", content, "application/octet-stream"),
            },
        )

    def deploy(self, name: str, package: bytes | str = OBEYS, file_name: str = "", **config: Any) -> None:
        """Create a function and wait until it runs."""
        answer = self.create(name, package, file_name, **config)
        assert answer.status_code < 300, answer.text
        wait_for(lambda: self.status(name)["running"], f"running {name}", 30)

    def status(self, name: str) -> dict[str, Any]:
        instances = self.http.get(f"{name}/status").raise_for_status().json()["instances"]
        return dict(instances[0]["status"]) if instances else {"running": False, "error": ""}

    def trigger(self, name: str, text: str) -> str:
        answer = self.http.post(f"{name}/trigger", files={"data": (None, text)})
        assert answer.status_code == 200, answer.text
        return answer.text

    def run(self, name: str, code: str) -> Any:
        """What a function that obeys finds as ``result``, or the text of the error that it met."""
        return json.loads(self.trigger(name, textwrap.dedent(code)))


def data_of(server: Server) -> Path:
    """The data directory of a server."""
    return server.directory / "data"
