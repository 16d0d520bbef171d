"""Deploys a function from the script that defines it, as in a notebook cell. With `magnetar standalone` running:

python3 examples/from_python/deploy.py pulsar://127.0.0.1:6650 http://127.0.0.1:8080
"""

import json
import sys

import magnetar
from magnetar.client import UnpicklableFunction
from tariff import Ride

BASE = 2.5


def fare(text, context):
    ride = json.loads(text)
    price = Ride(ride["km"], ride["minutes"]).fare(BASE, per_km=1.2, per_minute=context.get_user_config_value("minute"))
    return json.dumps({"ride": ride["id"], "fare": price})


def main(service_url, admin_url):
    with magnetar.Client(service_url, admin_url=admin_url) as client:
        client.functions.deploy(fare, inputs="rides", output="fares", user_config={"minute": 0.25})
        print(client.functions.trigger(fare, json.dumps({"id": 7, "km": 10, "minutes": 20})).decode())

        # Redeploying changes only the specified parts, here the code, which is replaced by that of the current script.
        client.functions.deploy(fare, user_config={"minute": 0.5})
        print(client.functions.get(fare)["userConfig"])

        # Objects that belong to this process cannot be pickled; the error names them.
        try:
            client.functions.deploy(lambda text: client.functions.list(), name="stuck", inputs="rides")
        except UnpicklableFunction as error:
            print(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
