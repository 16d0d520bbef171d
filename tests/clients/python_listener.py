"""A message through an advertised listener by the Python client, and what the admin API says of addresses.

Arguments: service URL, admin URL, topic, name of the listener. Writes JSON, as test_listeners.py expects it.
"""

from __future__ import annotations

import json
import sys

import httpx
import pulsar

LIMIT_S = 10


def outcome(service_url: str, topic: str, listener: str) -> str:
    """Return the payload of a message that was sent and received, or that the broker refused the client."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(service_url, operation_timeout_seconds=LIMIT_S, listener_name=listener, logger=logger)
    try:
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(b"m0")
        return str(consumer.receive(LIMIT_S * 1000).data().decode())
    except pulsar.PulsarException:
        return "refused"
    finally:
        client.close()


def main(service_url: str, admin_url: str, topic: str, listener: str) -> None:
    """Send and receive, then look the topic up."""
    seen: dict[str, object] = {"outcome": outcome(service_url, topic, listener)}
    with httpx.Client(base_url=admin_url, timeout=30) as http:
        found = http.get(f"/lookup/v2/topic/{topic.replace('://', '/')}").raise_for_status()
        seen["lookup"] = found.json()["brokerUrl"]
        seen["brokers"] = http.get("/admin/v2/brokers").raise_for_status().json()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
