"""Cases of secured_cases.py by the official Python client.

Reads a case from each line of standard input, JSON as `secured_site.Site.described` writes it. Writes a line for each:
its name, what came of it, the seconds that it took, and what the client said, separated by tabs.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulsar

AT_ONCE = 8
RECEIVE_MS = 20_000
PAUSE_S = 0.2
WORDS = (
    (pulsar.AuthenticationError, "authentication"),
    (pulsar.AuthorizationError, "authorization"),
    (pulsar.ConnectError, "connection"),
    (pulsar.Timeout, "timeout"),
    (pulsar.TopicNotFound, "missing"),
)


def _authentication(case: dict[str, Any]) -> pulsar.Authentication | None:
    params = case["params"]
    match case["kind"]:
        case "token":
            return pulsar.AuthenticationToken(params["token"])
        case "token file":
            return pulsar.AuthenticationToken(lambda: Path(params["file"]).read_text())
        case "basic":
            return pulsar.AuthenticationBasic(params["user"], params["password"])
        case "tls":
            return pulsar.AuthenticationTLS(params["certificate"], params["key"])
        case "oauth2":
            given = {
                "type": "client_credentials", "issuer_url": params["issuer"], "audience": params["audience"],
                "private_key": params["key_file"],
            }  # fmt: skip
            return pulsar.AuthenticationOauth2(json.dumps(given))
        case kind:
            assert kind == "nothing"
            return None


def _play(case: dict[str, Any], logger: Any) -> str:
    """Send and receive a message, then continue sending for the duration of the case."""
    options: dict[str, Any] = {}
    if shown := _authentication(case):
        options["authentication"] = shown
    if case["trust"]:
        options["tls_trust_certs_file_path"] = case["trust"]
        options["tls_validate_hostname"] = case["verifies"]
    client = pulsar.Client(case["url"], logger=logger, operation_timeout_seconds=case["limit_s"], **options)
    try:
        consumer = client.subscribe(case["topic"], "s")
        producer = client.create_producer(case["topic"], send_timeout_millis=case["limit_s"] * 1000)
        producer.send(b"hello")
        message = consumer.receive(RECEIVE_MS)
        consumer.acknowledge(message)
        end = time.monotonic() + case["seconds"]
        try:
            while time.monotonic() < end:
                producer.send(b"again")
                time.sleep(PAUSE_S)
        except pulsar.PulsarException:
            return "ended"
        return "ok" if message.data() == b"hello" else "another message"
    finally:
        client.close()


def outcome(case: dict[str, Any], logger: Any) -> tuple[str, float, str]:
    """Return the outcome of a case, its duration in seconds, and the client's message."""
    began = time.monotonic()
    said = ""
    try:
        result = _play(case, logger)
    except pulsar.PulsarException as error:
        said = " ".join(str(error).split())
        result = next((word for kind, word in WORDS if isinstance(error, kind)), said)
    return result, time.monotonic() - began, said


def play(cases: list[dict[str, Any]], logger: Any) -> dict[str, tuple[str, float, str]]:
    """Run cases, several in parallel, and return the result of `outcome` for each."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(lambda case: outcome(case, logger), cases)
        return {case["name"]: found for case, found in zip(cases, outcomes, strict=True)}


def main() -> None:
    cases = [json.loads(line) for line in sys.stdin]
    for name, (result, took_s, said) in play(cases, pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)).items():
        print(name, result, f"{took_s:.2f}", said, sep="\t", flush=True)


if __name__ == "__main__":
    main()
