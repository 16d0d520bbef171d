"""Run functions of a tenant on a worker that isolates user code, with code that tests control."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from .servers import Server, descendants, is_alive
from .waiting import wait_for

USERS = ("daemon", "games")
"""System users of two tenants: Debian always has them, each with its own group, and no process runs as them."""
TENANTS = ("one", "two")
MARKERS = {kind: f"marker-of-the-{kind}-{uuid.uuid4().hex}" for kind in ("environment", "settings", "secret", "said")}
"""Files that only their owner's code may access: those of the worker, and of a function of the second tenant."""
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
    """The functions of one tenant, deployed as users do."""

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
            "output": f"persistent://{self.tenant}/code/{name}-out", "processingGuarantees": "ATMOST_ONCE", **config,
        }  # fmt: skip
        return self._send("POST", name, full, data=(file_name or f"{name}.py", content, "application/octet-stream"))

    def update(self, name: str, **config: Any) -> httpx.Response:
        """Update the config of a function."""
        return self._send("PUT", name, {"runtime": "PYTHON", **config})

    def _send(self, method: str, name: str, config: dict[str, Any], **files: Any) -> httpx.Response:
        files = {"functionConfig": (None, json.dumps(config), "application/json"), **files}
        return self.http.request(method, name, files=files)

    def deploy(self, name: str, package: bytes | str = OBEYS, file_name: str = "", **config: Any) -> None:
        """Create a function, and wait until it is running."""
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

    def end(self, name: str, code: str) -> None:
        """Run code that ends its process, and wait until the function is running again."""
        self.http.post(f"{name}/trigger", files={"data": (None, code)})
        wait_for(lambda: (status := self.status(name))["running"] and status["numRestarts"], f"restart of {name}", 30)

    def run(self, name: str, code: str) -> Any:
        """Run code in the function, and return its ``result``, or the text of the error."""
        return json.loads(self.trigger(name, textwrap.dedent(code)))


def make_tenant(server: Server, tenant: str) -> None:
    """Create a tenant with the namespace `code`."""
    body = {"allowedClusters": ["standalone"]}
    httpx.put(f"{server.web_url}/admin/v2/tenants/{tenant}", json=body).raise_for_status()
    httpx.put(f"{server.web_url}/admin/v2/namespaces/{tenant}/code", json={}).raise_for_status()


def processes(server: Server) -> dict[int, str]:
    """Return all processes of a server with their titles."""
    everything = [psutil.Process(server.pid), *descendants(server.pid)]
    return {one.pid: " ".join(one.cmdline()) for one in everything if is_alive(one)}


def data_of(server: Server) -> Path:
    """Return the data directory of a server."""
    return server.directory / "data"
