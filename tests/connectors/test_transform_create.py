"""Transform functions of installed connectors, from the command line to what the sink writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Answer, call
from tests.support.servers import running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CODE = """
def loud(value):
    return None if value == b"quiet" else value.upper()

def marked(value, context):
    return value + context.get_user_config_value("mark").encode()
"""


def test_the_function_of_an_installed_sink_is_uploaded_changed_and_survives_a_restart(tmp_path: Path) -> None:
    code, files = tmp_path / "change.py", tmp_path / "files"
    code.write_text(CODE)
    with running("standalone", tmp_path / "server") as server:

        def command(*arguments: str) -> Answer:
            return call(*arguments, admin_url=server.web_url, service_url=server.service_url)

        def written() -> list[str]:
            return sorted(line for file in files.glob("[!.]*") for line in file.read_text().splitlines())

        def send_and_wait(*texts: str, then: list[str]) -> None:
            command("produce", "in", "-s", "", *(part for text in texts for part in ("-m", text))).ok()
            wait_for(lambda: written() == sorted(then), f"lines {then}", timeout_s=60)

        create = [
            "sinks",
            "create",
            "--name",
            "s",
            "--sink-type",
            "file",
            "--inputs",
            "in",
            "--subs-position",
            "Earliest",
        ]
        create += ["--sink-config", json.dumps({"path": str(files), "format": "lines", "rollSeconds": 0.2})]
        transform = ["--transform-function", str(code), "--transform-function-classname"]
        command(*create, "--transform-function", str(code)).refused("requires transformFunctionClassName")
        command(*create, "--transform-function-classname", "change.loud").refused("package is not provided")
        command(*create, *transform, "change.quiet").refused("module change has no quiet; it defines loud, marked")
        command(*create, *transform, "change.loud").ok()
        send_and_wait("a", "quiet", "b", then=["A", "B"])

        change = ["sinks", "update", "--name", "s", "--transform-function-classname", "change.marked"]
        command(*change, "--transform-function-config", "{").refused("transformFunctionConfig is not valid JSON")
        command(*change, "--transform-function-config", '{"mark": "!"}').ok()
        shown = command("sinks", "get", "--name", "s").ok().json()
        assert shown["transformFunctionClassName"] == "change.marked"
        send_and_wait("c", then=["A", "B", "c!"])

        server.kill()
        server.restart()
        send_and_wait("d", then=["A", "B", "c!", "d!"])

        plain = ["sinks", "update", "--name", "s", "--transform-function-classname", ""]
        command(*plain, "--transform-function-config", "").ok()
        send_and_wait("e", then=["A", "B", "c!", "d!", "e"])
