"""A DataFrame function that gives Spark an unpicklable object."""

from __future__ import annotations

import pytest
from magnetar.spark.jobs.progress import reason_of

from tests.spark.functions import Lab

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LOCKED = """
import threading
from pyspark.sql import functions as f

def process(df):
    lock = threading.Lock()

    def guarded(value):
        with lock:
            return value

    return df.select(f.udf(guarded)("value").alias("value"))
"""


def test_what_cannot_be_pickled_is_named_in_one_line_with_the_remedy(lab: Lab) -> None:
    function = lab.function(LOCKED)
    lab.fill([[b"a"]])
    end = lab.run(function)
    assert (end.stage, end.is_user_error) == ("failed", True)
    assert reason_of(end.error) == (
        "cannot pickle an object that user_code.process passes to Spark: Could not serialize object: TypeError: cannot"
        " pickle"
        " '_thread.lock' object; create the object inside the function that Spark calls"
    )
