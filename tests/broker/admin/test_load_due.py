"""Changed policies load the unloaded topics that they concern, and look at no others."""

from __future__ import annotations

import pytest
from magnetar.broker.topics.unloading import Unloading
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker

NAMESPACES = ("public/default", "public/other")


@pytest.mark.parametrize("path", ["namespaces/public/other/messageTTL", "persistent/public/other/t/messageTTL"])
async def test_only_namespaces_with_changed_policies_are_looked_through(
    path: str, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = broker.service
    unloading = Unloading(service, service._incarnations, lambda _: 0)
    assert (await broker.http.put("/admin/v2/namespaces/public/other")).is_success
    for namespace in NAMESPACES:
        for name in (f"persistent://{namespace}/t", f"persistent://{namespace}/u"):
            topic = await service.topic(parse_topic_name(name), create=True)
            await topic.create_subscription("s", "earliest")
            await topic.publish(b"x", 1, service.now_ms())
            service._incarnations.unload(topic.name)
    await unloading.load_due()
    assert not service.topics
    monkeypatch.setattr(service.namespaces, "on_policies", unloading.note_policies)
    monkeypatch.setattr(service.storage, "log_names", lambda: pytest.fail("all topics were looked through"))
    assert (await broker.http.post(f"/admin/v2/{path}?messageTTL=60", json=60)).is_success
    await unloading.load_due()
    concerned = {"t"} if path.startswith("persistent") else {"t", "u"}
    assert set(service.topics) == {f"persistent://public/other/{name}" for name in concerned}
