"""The function of the README: readings that are far from what their sensor showed before.

magnetar functions create --py examples/sensors.py --classname sensors.alarm --inputs readings --output alarms
"""

import json
import math
from collections import defaultdict

seen = defaultdict(lambda: [0, 0.0, 0.0])  # sensor -> number of readings, mean, sum of squared differences


def alarm(text):
    reading = json.loads(text)
    state = seen[reading["sensor"]]
    count, mean, squares = state
    value = reading["value"]
    is_odd = count >= 10 and abs(value - mean) > 4 * math.sqrt(squares / count)
    state[0] = count + 1
    state[1] = mean + (value - mean) / state[0]
    state[2] = squares + (value - mean) * (value - state[1])
    if is_odd:
        return json.dumps({"sensor": reading["sensor"], "value": value, "usual": round(mean, 2)})
