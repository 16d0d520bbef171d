"""Detects unusual payments between two Kafka topics."""

import json

from magnetar import Function


class Odd(Function):
    """Publishes an alert for payments above a limit, keyed by account."""

    def process(self, payment, context):
        """Publish an alert if the amount is above ``limit``."""
        payment = json.loads(payment)
        limit = context.get_user_config_value("limit")
        if payment["amount"] > limit:
            alert = {"payment": payment["id"], "amount": payment["amount"], "why": f"more than {limit}"}
            account = {"partition_key": context.get_message_key()}
            context.publish(context.get_output_topic(), json.dumps(alert), message_conf=account)
