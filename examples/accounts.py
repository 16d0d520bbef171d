"""A stateful function: books payments, rejects overdrafts, and returns the new balance.

magnetar functions create --py examples/accounts.py --classname accounts.Accounts \
    --inputs payments --output receipts --retain-ordering
magnetar produce payments -m '{"account": "ada", "amount": 50}'
magnetar functions querystate --name Accounts --key ada
"""

import json

from pulsar import Function


class Accounts(Function):
    def process(self, item, context):
        payment = json.loads(item)
        account = payment["account"]
        balance = context.get_counter(account) + payment["amount"]
        is_booked = balance >= 0
        if is_booked:
            context.incr_counter(account, payment["amount"])
        else:
            context.put_state(f"refused/{account}", json.dumps(payment))
        return json.dumps({**payment, "booked": is_booked, "balance": balance if is_booked else None})
