"""Turns sensor readings in Celsius into Fahrenheit; as a process on each message, or by Spark over what has piled up.

    magnetar functions create --runtime spark --py examples/spark/readings.py --classname readings.to_fahrenheit \
        --inputs celsius --output fahrenheit --subs-position Earliest --name fahrenheit
    magnetar produce celsius -m '{"sensor": "roof", "celsius": 21.5}' -n 10000
    magnetar functions trigger --name fahrenheit

Each `trigger` works off the messages that have come since the last one and returns when the outputs are stored. With
`--runtime process` the same file runs all the time.
"""

import json

ABSOLUTE_ZERO = -273.15


def to_fahrenheit(message, context):
    """Return the reading in Fahrenheit; one that no thermometer can show is left out."""
    reading = json.loads(message)
    if reading["celsius"] < ABSOLUTE_ZERO:
        context.get_logger().warning("sensor %s is broken: %s", reading["sensor"], reading["celsius"])
        return None
    return json.dumps({"sensor": reading["sensor"], "fahrenheit": round(reading["celsius"] * 1.8 + 32, 2)})
