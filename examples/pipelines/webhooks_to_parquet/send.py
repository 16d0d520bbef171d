"""Sends orders as webhooks: python send.py URL TOKEN COUNT. Orders that are temporarily rejected are resent."""

import asyncio
import sys

import httpx

AT_ONCE = 50


async def send(http: httpx.AsyncClient, url: str, number: int) -> None:
    """Send one order until it is stored."""
    shop = f"shop-{number % 7}"
    order = {"shop": shop, "order": number, "items": [{"article": "apple", "count": number % 5 + 1, "price": 0.25}]}
    while True:
        try:
            answer = await http.post(url, json=order, headers={"X-Shop": shop})
        except httpx.TransportError:
            pause_s = 1.0
        else:
            if answer.is_success:
                return
            if answer.status_code != 503:
                raise SystemExit(f"order {number} was rejected: {answer.status_code} {answer.text}")
            pause_s = float(answer.headers["retry-after"])
        await asyncio.sleep(pause_s)


async def main(url: str, token: str, count: int) -> None:
    """Send `count` orders."""
    numbers = iter(range(count))
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60) as http:

        async def sender() -> None:
            for number in numbers:
                await send(http, url, number)

        async with asyncio.TaskGroup() as senders:
            for _ in range(AT_ONCE):
                senders.create_task(sender())
    print(f"sent {count} orders")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
