"""What a request says about a function is done, or refused by name; nothing is taken and ignored."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx
import pytest

from tests.support.command import call
from tests.support.functions import Functions
from tests.support.servers import Server

SOURCE = "def process(text):\n    return text\n"


def test_log_topic_and_output_are_taken_away_by_an_empty_text(standalone: Server, functions: Functions) -> None:
    config = {"className": "quiet.process", "inputs": ["quiet-in"], "output": "quiet-out", "logTopic": "quiet-log"}
    functions.create("quiet", SOURCE, {**config, "runtimeEnv": "thread"}).raise_for_status()
    shown = {"output": "quiet-out", "logTopic": "quiet-log"}
    for field, flag in (("logTopic", "--log-topic"), ("output", "--output")):
        call("functions", "update", "--name", "quiet", flag, "", admin_url=standalone.web_url).ok()
        del shown[field]
        found = httpx.get(functions.url + "quiet", timeout=60).json()
        assert {name: found[name] for name in ("output", "logTopic") if name in found} == shown
    call("functions", "update", "--name", "quiet", "--log-topic", "", admin_url=standalone.web_url).refused("no change")
    functions.delete("quiet")


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        ({"subscriptionPosition": "Earliest"}, None, "subscriptionPosition cannot be altered"),
        ({"parallelism": 2}, {"updateAuthData": True}, "updateAuthData requires authentication"),
        ({"parallelism": 2}, {"updateAuthData": "yes"}, "updateAuthData: expected true or false"),
        ({"parallelism": 2}, {"restart": True}, "updateOptions: unknown field restart"),
        ({"runtime": "JAVA", "py": "kept.py"}, None, "runtime JAVA contradicts py"),
    ],
)
def test_update_that_would_be_ignored_is_refused(
    functions: Functions, config: dict[str, object], options: dict[str, object] | None, words: str
) -> None:
    if httpx.get(functions.url + "kept", timeout=60).status_code == 404:
        config_of_it = {"className": "kept.process", "inputs": ["kept-in"], "runtimeEnv": "thread"}
        functions.create("kept", SOURCE, config_of_it).raise_for_status()
    parts = {"functionConfig": (None, json.dumps(config), "application/json")}
    if options is not None:
        parts["updateOptions"] = (None, json.dumps(options), "application/json")
    answer = httpx.put(functions.url + "kept", files=parts, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["reason"].startswith(words)


@pytest.mark.parametrize("name", ["é" * 128, "x" * 129, "a\x1b", "a\nb"])
def test_function_name_that_no_file_or_process_can_have_is_refused(functions: Functions, name: str) -> None:
    answer = functions.create(quote(name), SOURCE, {"className": "f.process", "inputs": ["in"]})
    assert answer.status_code == 400
    assert "Function name " in answer.json()["reason"]
