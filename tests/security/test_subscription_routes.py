"""The routes of a namespace spare a subscription that other roles were granted."""

from __future__ import annotations

from pathlib import Path

from tests.security.secured import Secured, make_golden_world, secured

NAMESPACE = "/admin/v2/namespaces/sec/ns"
TOPIC = "/admin/v2/persistent/sec/ns/t"


async def subscriptions(secure: Secured) -> dict[str, int]:
    """The backlog of each subscription."""
    stats = (await secure.call("superuser", "GET", f"{TOPIC}/stats")).json()
    return {name: one["msgBacklog"] for name, one in stats["subscriptions"].items()}


async def make_world(secure: Secured) -> None:
    await make_golden_world(secure)
    for role in ("ann", "bob"):
        await secure.superuser("POST", f"{NAMESPACE}/permissions/{role}", ["consume", "produce"])
    for name in ("granted", "open"):
        await secure.superuser("PUT", f"{TOPIC}/subscription/{name}")
    await secure.superuser("POST", f"{NAMESPACE}/permissions/subscription/granted", ["ann"])
    raw = await secure.connect("ann")
    await raw.request("PRODUCER", topic="persistent://sec/ns/t", producer_id=1, request_id=1)
    raw.send_message(b"x")
    assert (await raw.receive()).command.HasField("send_receipt")
    await raw.close()


async def test_who_was_not_granted_a_subscription_cannot_clear_or_drop_it(tmp_path: Path) -> None:
    async with secured(tmp_path) as secure:
        await make_world(secure)
        before = await subscriptions(secure)
        assert before["granted"] == before["open"] == 1
        bundle = "0x00000000_0xffffffff"
        for path in (
            "clearBacklog/granted", "unsubscribe/granted", "clearBacklog",
            f"{bundle}/clearBacklog/granted", f"{bundle}/unsubscribe/granted",
        ):  # fmt: skip
            answer = await secure.call("bob", "POST", f"{NAMESPACE}/{path}")
            assert answer.status_code in (401, 403), path
        assert await subscriptions(secure) == before
        assert (await secure.call("bob", "POST", f"{NAMESPACE}/clearBacklog/open")).is_success
        assert (await secure.call("ann", "POST", f"{NAMESPACE}/clearBacklog")).is_success
        assert set((await subscriptions(secure)).values()) == {0}
        assert (await secure.call("ann", "POST", f"{NAMESPACE}/unsubscribe/granted")).is_success
        assert "granted" not in await subscriptions(secure)
