"""Who writes to a topic that nothing keeps is told so, once, and by whom nobody can be asked is not told anything."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.spark.source.connection import ask
from magnetar.spark.source.keeping import warn_unless_kept
from magnetar.spark.source.options import WriteOptions, write_options

from tests.spark.topics import fill
from tests.support.servers import Server


def written(cluster: Server, topic: str, **options: str) -> WriteOptions:
    fill(cluster.service_url, topic, [[b"x"]])
    given = {"service.url": cluster.service_url, "admin.url": cluster.web_url, "topic": topic, **options}
    return write_options({name: value for name, value in given.items() if value}, "run")


def admin(cluster: Server, method: str, path: str, body: Any = None) -> None:
    ask(cluster.web_url, method, f"/admin/v2/{path}", body=body)


def test_a_topic_without_subscription_and_retention_is_named_with_both_remedies(
    cluster: Server, caplog: pytest.LogCaptureFixture
) -> None:
    assert warn_unless_kept(written(cluster, "unkept"))
    [line] = caplog.messages
    assert line.startswith(
        "messages written to persistent://public/default/unkept will soon be deleted: the topic has no"
    )
    assert "magnetar topics create-subscription persistent://public/default/unkept -s NAME -m earliest" in line
    assert "magnetar namespaces set-retention public/default -t 7d -s -1" in line


def test_a_subscription_keeps_a_topic_and_all_partitions_of_one(
    cluster: Server, caplog: pytest.LogCaptureFixture
) -> None:
    admin(cluster, "PUT", "persistent/public/default/parts/partitions", 2)
    options = written(cluster, "parts")
    assert warn_unless_kept(options)
    for name in ("parts", "single"):
        options = written(cluster, name)
        admin(cluster, "PUT", f"persistent/public/default/{name}/subscription/s")
        caplog.clear()
        assert not warn_unless_kept(options)
        assert not caplog.messages


def test_the_retention_of_a_namespace_keeps_a_topic(cluster: Server) -> None:
    admin(cluster, "PUT", "namespaces/public/retained")
    admin(
        cluster, "POST", "namespaces/public/retained/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    )
    assert not warn_unless_kept(written(cluster, "public/retained/one"))


def test_where_nobody_can_be_asked_nothing_is_said_and_nothing_fails(cluster: Server) -> None:
    assert not warn_unless_kept(written(cluster, "unasked", **{"admin.url": ""}))
    assert not warn_unless_kept(written(cluster, "unasked", **{"admin.url": "http://127.0.0.1:1"}))
