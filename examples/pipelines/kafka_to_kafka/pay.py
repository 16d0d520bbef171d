"""Sends payments: python pay.py SERVERS COUNT. Each is a record in the topic payments, keyed by account."""

import json
import sys

from confluent_kafka import Producer


def main(servers: str, count: int) -> None:
    """Send `count` payments."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(count):
        payment = {"id": number, "amount": number * 37 % 1000}
        producer.produce("payments", json.dumps(payment), key=f"account-{number % 50}")
        producer.poll(0)
    if left := producer.flush(60):
        raise SystemExit(f"{left} payments were not sent")
    print(f"sent {count} payments")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
