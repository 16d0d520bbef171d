"""Computes order totals from webhooks, for Parquet files."""

import json


def total(order):
    """Return the shop, number, total and article count of an order."""
    order = json.loads(order)
    items = order["items"]
    return json.dumps(
        {
            "shop": order["shop"],
            "order": order["order"],
            "articles": sum(item["count"] for item in items),
            "total": round(sum(item["count"] * item["price"] for item in items), 2),
        }
    )
