"""Prices of the articles."""

PRICES = {"apple": 0.4, "pear": 0.45}


def price(name):
    if name not in PRICES:
        raise ValueError(f"no price for {name!r}: expected one of {', '.join(sorted(PRICES))}")
    return PRICES[name]
