"""Converts sensor readings from Celsius to Fahrenheit, message by message in a process, or in bulk with Spark.

    magnetar functions create --runtime spark --py examples/spark/readings.py --classname readings.to_fahrenheit \
        --inputs celsius --output fahrenheit --subs-position Earliest --name fahrenheit
    magnetar produce celsius -m '{"sensor": "roof", "celsius": 21.5}' -n 10000
    magnetar functions trigger --name fahrenheit

Each `trigger` processes the messages that arrived since the previous run, and returns once the outputs are stored. With
`--runtime process` the same file runs continuously.
"""

import json

ABSOLUTE_ZERO = -273.15


def to_fahrenheit(message, context):
    """Return the reading in Fahrenheit; impossible readings are dropped."""
    reading = json.loads(message)
    if reading["celsius"] < ABSOLUTE_ZERO:
        context.get_logger().warning(
            "dropped an impossible reading of sensor %s: %s", reading["sensor"], reading["celsius"]
        )
        return None
    return json.dumps({"sensor": reading["sensor"], "fahrenheit": round(reading["celsius"] * 1.8 + 32, 2)})
