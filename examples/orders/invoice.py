"""A package of two modules: this one contains the function, and imports the other.

(cd examples/orders && python3 -m zipfile -c /tmp/orders.zip invoice.py prices.py)
magnetar functions create --py /tmp/orders.zip --classname invoice.total --inputs orders --output invoices
"""

import json

import prices


def total(order):
    """`{"apple": 3, "pear": 1}` becomes `{"total": 1.65}`; unknown articles raise an error, which the status shows."""
    articles = json.loads(order)
    return json.dumps({"total": round(sum(prices.price(name) * number for name, number in articles.items()), 2)})
