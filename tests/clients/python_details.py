"""The details of details.py by the official Python client, and by plain HTTP: it has no admin library.

Arguments: service URL, admin URL, prefix of all topics, names of details. Writes one line for each: its name, a tab,
what was observed as JSON; or, after the tab, "error " and the error, or "absent" for one that is not here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pulsar

TIMEOUT_MS = 20_000
GROUP_RATES = {"publishRateInMsgs": 1000, "publishRateInBytes": 100_000}


class Details:
    """All of them, on one client."""

    def __init__(self, service_url: str, admin_url: str) -> None:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(service_url, operation_timeout_seconds=20, logger=logger)
        self._http = httpx.Client(base_url=f"{admin_url}/admin/v2/", timeout=30)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer, its text if it is not JSON, or None if it is empty."""
        answer = self._http.request(method, path, **({} if body is None else {"json": body}))
        if not answer.is_success:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        try:
            return answer.json() if answer.content else None
        except json.JSONDecodeError:
            return answer.text

    def _status(self, method: str, path: str, body: Any = None) -> int:
        """Return the status of a rejected request, or 0 if it succeeds."""
        answer = self._http.request(method, path, **({} if body is None else {"json": body}))
        return 0 if answer.is_success else answer.status_code

    def _send(self, topic: str, *payloads: bytes) -> None:
        producer = self._client.create_producer(topic, batching_enabled=False)
        for payload in payloads:
            producer.send(payload)
        producer.close()

    def largest_message(self, topic: str) -> Any:
        limit = int(self._call("GET", "brokers/configuration/runtime")["maxMessageSize"])
        consumer = self._client.subscribe(topic, "s")
        producer = self._client.create_producer(topic, batching_enabled=False)
        low, high = limit - 200, limit + 1  # a size that is sent, and one that is refused
        producer.send(bytes(low))
        while high - low > 1:
            middle = (low + high) // 2
            try:
                producer.send(bytes(middle))
                low = middle
            except pulsar.MessageTooBig:
                high = middle
        while len(consumer.receive(TIMEOUT_MS).data()) != low:
            pass  # a smaller one that was sent before
        name = producer.producer_name()
        return [limit - low - len(name), re.fullmatch(r"standalone-\d+-\d+", name) is not None]

    def topic_type(self, topic: str) -> Any:
        namespace = self._namespace(topic)
        path = f"namespaces/{namespace}/autoTopicCreation"
        self._call("POST", path, {"allowAutoTopicCreation": False, "topicType": ""})
        kept = self._call("GET", path)
        seen = [kept["allowAutoTopicCreation"], kept["topicType"], self._created(namespace)]
        seen.append(self._status("POST", path, {"allowAutoTopicCreation": True, "topicType": ""}))
        self._call("DELETE", path)
        return [*seen, self._created(namespace)]

    def _created(self, namespace: str) -> str:
        try:
            self._client.create_producer(f"{namespace}/t").close()
        except pulsar.PulsarException:
            return "refused"
        return "created"

    def partition_index(self, topic: str) -> Any:
        path = topic.replace("://", "/")
        self._call("PUT", f"{path}/partitions", 3)
        self._send(f"{topic}-partition-2", b"m0")
        self._send(f"{topic}-plain", b"m0")
        return [
            self._call("GET", f"{path}-{one}/{call}")["partitionIndex"]
            for one in ("partition-2", "plain")
            for call in ("messageid/0", "lastMessageId")
        ]

    def cluster_slash(self, topic: str) -> Any:
        path = f"clusters/{topic.rpartition('/')[2]}"
        urls = {"serviceUrl": "http://127.0.0.1:8080/", "brokerServiceUrl": "pulsar://127.0.0.1:6650/"}
        self._call("PUT", path, urls)
        kept = self._call("GET", path)
        self._call("DELETE", path)
        return [kept[name] for name in urls]

    def anti_affinity(self, topic: str) -> Any:
        namespace = self._namespace(topic)
        path, group = f"namespaces/{namespace}/antiAffinity", f"{topic.rpartition('/')[2]}-group"
        answer = self._http.post(path, content=group, headers={"content-type": "application/json"})
        answer.raise_for_status()
        kept = self._call("GET", path)
        listed = self._call("GET", f"namespaces/standalone/antiAffinity/{group}?tenant=public")
        self._call("DELETE", path)
        return [kept == group, listed == [namespace], self._call("GET", path) or ""]

    def resource_groups(self, topic: str) -> Any:
        namespace = self._namespace(topic)
        name = namespace.partition("/")[2]
        group, member = f"resourcegroups/{name}", f"namespaces/{namespace}/resourcegroup"
        self._call("PUT", group, GROUP_RATES)
        self._call("PUT", group, GROUP_RATES | {"publishRateInMsgs": 2000, "dispatchRateInMsgs": 3000})
        kept = self._call("GET", group)
        seen = [kept[rate] for rate in ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs")]
        seen.append(name in self._call("GET", "resourcegroups"))
        self._call("POST", f"{member}/{name}")
        seen.append(self._call("GET", member) == name)
        seen += [self._status("POST", f"{member}/absent"), self._status("DELETE", group)]
        self._call("DELETE", member)
        self._call("DELETE", group)
        return [*seen, self._status("GET", group)]

    def subscription_properties(self, topic: str) -> Any:
        path = topic.replace("://", "/")
        properties = f"{path}/subscription/s/properties"
        self._call("PUT", f"{path}/partitions", 2)
        latest = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}
        self._call("PUT", f"{path}/subscription/s", latest | {"properties": {"a": "b"}})
        seen = [self._call("GET", properties)]
        self._call("PUT", properties, {"c": "d"})
        seen.append(self._call("GET", properties))
        stats = self._call("GET", f"{path}-partition-1/stats")
        seen.append(stats["subscriptions"]["s"]["subscriptionProperties"])
        self._call("PUT", properties, {})
        return [*seen, self._call("GET", properties)]

    def dynamic_settings(self, _topic: str) -> Any:
        values = {
            "maxConcurrentLookupRequest": "40000",
            "dispatchThrottlingRatePerSubscriptionInMsg": "100000",
            "dispatchThrottlingRateInByte": "1000000000",
        }
        path = "brokers/configuration"
        are_known = values.keys() <= set(self._call("GET", path))
        for name, value in values.items():
            self._call("POST", f"{path}/{name}/{value}")
        are_kept = values.items() <= self._call("GET", f"{path}/values").items()
        for name in values:
            self._call("DELETE", f"{path}/{name}")
        are_gone = not values.keys() & self._call("GET", f"{path}/values").keys()
        return [are_known, are_kept, are_gone, self._status("POST", f"{path}/absent/1")]

    def broker_stats(self, _topic: str) -> Any:
        metrics = self._call("GET", "broker-stats/metrics")
        are_rows = bool(metrics) and all(
            row["metrics"] is not None and row["dimensions"] is not None for row in metrics
        )
        beans = {row["dimensions"]["MBean"]: row["metrics"] for row in self._call("GET", "broker-stats/mbeans")}
        has_threads = beans["java.lang:type=Threading"]["ThreadCount"] > 0
        is_object = isinstance(self._call("GET", "broker-stats/topics"), dict)
        caches = [
            self._call("GET", f"broker-stats/allocator-stats/{name}")["numThreadLocalCaches"] >= 0
            for name in ("default", "ml-cache")
        ]
        return [are_rows, has_threads, is_object, *caches]

    def replicator_rates(self, topic: str) -> Any:
        namespace = self._namespace(topic)
        names = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte", "ratePeriodInSecond")
        of_namespace = f"namespaces/{namespace}/replicatorDispatchRate"
        self._call("POST", of_namespace, dict(zip(names, (12, 22, 1), strict=True)))
        kept = self._call("GET", of_namespace)
        inside = f"persistent/{namespace}/t"
        self._call("PUT", inside)
        self._call("POST", f"{inside}/replicatorDispatchRate", dict(zip(names, (13, 23, 2), strict=True)))
        own = self._call("GET", f"{inside}/replicatorDispatchRate")
        return [[kept[name] for name in names], [own[name] for name in names]]

    def bookie_affinity(self, topic: str) -> Any:
        path = f"namespaces/{self._namespace(topic)}/persistence/bookieAffinity"
        names = ("bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary")
        self._call("POST", path, dict(zip(names, ("one", "two"), strict=True)))
        kept = self._call("GET", path)
        self._call("DELETE", path)
        return [*(kept[name] for name in names), self._status("GET", path)]

    def peek_absent(self, topic: str) -> Any:
        self._send(topic, b"m0", b"m1")
        path = f"{topic.replace('://', '/')}/subscription/absent/position"
        return [self._http.get(f"{path}/{place}").raise_for_status().text for place in (1, 2)]

    def _namespace(self, topic: str) -> str:
        """Create a namespace for a detail."""
        namespace = f"public/{topic.rpartition('/')[2]}"
        self._call("PUT", f"namespaces/{namespace}")
        return namespace


def main(service_url: str, admin_url: str, prefix: str, *names: str) -> None:
    """Play details."""
    details = Details(service_url, admin_url)
    for name in names:
        play: Callable[[str], Any] | None = getattr(details, name, None)
        if play is None:
            seen = "absent"
        else:
            try:
                seen = json.dumps(play(f"{prefix}-{name}"))
            except Exception as error:  # noqa: BLE001  whatever it is, it is what was observed
                seen = f"error {' '.join(f'{type(error).__name__}: {error}'.split())}"
        print(f"{name}\t{seen}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
