"""The function in the README, which passes on readings that differ strongly from recent ones of the same sensor.

magnetar functions create --py examples/sensors.py --classname sensors.alarm --inputs readings --output alarms
"""

from collections import defaultdict, deque
from statistics import median

recent = defaultdict(lambda: deque(maxlen=20))  # the latest readings of each sensor


def alarm(reading: dict) -> dict | None:
    value, values = reading["value"], recent[reading["sensor"]]
    usual = median(values) if values else value
    values.append(value)
    return {**reading, "usual": usual} if abs(value - usual) > 10 else None
