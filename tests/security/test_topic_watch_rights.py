"""A topic watch ends with the right to watch."""

from __future__ import annotations

from pathlib import Path

from tests.security.secured import make_golden_world, secured

PERMISSIONS = "/admin/v2/namespaces/sec/ns/permissions/watcher"


async def test_who_may_no_longer_watch_is_told_nothing_more(tmp_path: Path) -> None:
    async with secured(tmp_path) as secure:
        await make_golden_world(secure)
        await secure.superuser("POST", PERMISSIONS, ["consume"])
        raw = await secure.connect("watcher")
        answer = await raw.request(
            "WATCH_TOPIC_LIST", request_id=1, watcher_id=1, namespace="sec/ns", topics_pattern="sec/ns/.*"
        )
        assert answer.HasField("watchTopicListSuccess")
        await secure.superuser("PUT", "/admin/v2/persistent/sec/ns/seen")
        update = (await raw.receive()).command.watchTopicUpdate
        assert list(update.new_topics) == ["persistent://sec/ns/seen"]
        await secure.superuser("DELETE", PERMISSIONS)
        await secure.superuser("PUT", "/admin/v2/persistent/sec/ns/hidden")
        assert not await raw.barrier()
        await secure.superuser("POST", PERMISSIONS, ["consume"])  # as when grants are replaced
        await secure.superuser("PUT", "/admin/v2/persistent/sec/ns/later")
        update = (await raw.receive()).command.watchTopicUpdate
        assert "persistent://sec/ns/later" in update.new_topics
        await raw.close()
