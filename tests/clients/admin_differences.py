"""Intended differences between our answers and Pulsar's as seen by `pulsar-admin`, each with its reason."""

from __future__ import annotations

from tests.clients.admin_answers import Answer

DIFFERENT: dict[str, tuple[Answer, str]] = {
    "topics subscriptions {topic} (again)": (Answer(0, "s"), "peeking leaves no subscription behind"),
    "bookies list-bookies": (Answer(0, {"bookies": []}), "there are no bookies"),
    "ns-isolation-policy brokers standalone": (
        Answer(0, '{ "brokerName" : "127.0.0.1:WEB", "namespaceRegex" : [ ], "primary" : false }'),
        "brokers are listed without policies, too, as Apache Pulsar does once the first policy was set",
    ),
}
"""Our answer and the reason, by command."""
