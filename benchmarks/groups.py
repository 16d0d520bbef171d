"""The benchmarks by name, in groups that take at most 20 minutes each; pure except for imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .async_rates import measure_async
from .awaited_rates import measure_awaited
from .broker_rates import measure_fan_out, measure_key_shared, measure_schema
from .catch_up import measure_catch_up
from .client_rates import measure_consume, measure_publish
from .compiled_rates import measure_compiled
from .connector_rates import measure_connectors
from .delayed_rates import measure_delayed
from .encryption_rates import measure_encryption
from .exact_rates import measure_exact
from .failover import measure_failover
from .fault_rates import measure_faults
from .figure import Figure
from .footprint import measure_idle, measure_start, measure_threads
from .function_rates import measure_functions
from .group_commit import measure_group_commit
from .growth_functions import measure_growth_functions
from .growth_partitions import measure_growth_consumers, measure_growth_partitions
from .growth_state import measure_growth_state
from .growth_topics import measure_growth_topics
from .jdbc_rates import measure_jdbc
from .json_rates import measure_json
from .kafka_rates import measure_kafka
from .latency import measure_latency
from .letter_rates import measure_letters
from .plan import Plan
from .produce_rates import measure_produce
from .secured_rates import measure_secured_functions, measure_secured_publish
from .spark_function import measure_spark_function
from .spark_read import measure_spark
from .spark_schemas import measure_spark_schemas
from .spark_start import measure_spark_start
from .state_rates import measure_state
from .state_size import measure_state_size
from .topics_on_disk import measure_topics_on_disk

Benchmark = Callable[[Plan], Iterator[Figure]]

MINUTES_MAX = 20
GROUPS: dict[str, dict[str, Benchmark]] = {
    "functions": {"functions": measure_functions, "latency": measure_latency},
    "kinds": {
        "json": measure_json,
        "async": measure_async,
        "letters": measure_letters,
        "produce": measure_produce,
        "faults": measure_faults,
    },
    "compiled": {"compiled": measure_compiled},
    "exactly": {"exactly": measure_exact},
    "state": {"state": measure_state, "state-size": measure_state_size},
    "clients": {
        "publish": measure_publish,
        "awaited": measure_awaited,
        "consume": measure_consume,
        "group-commit": measure_group_commit,
    },
    "broker": {
        "key-shared": measure_key_shared,
        "fan-out": measure_fan_out,
        "schema": measure_schema,
        "catch-up": measure_catch_up,
        "delayed": measure_delayed,
        "topics-on-disk": measure_topics_on_disk,
    },
    "encryption": {"encryption": measure_encryption},
    "security": {"secured-publish": measure_secured_publish, "secured-functions": measure_secured_functions},
    "spark": {
        "spark": measure_spark,
        "spark-schemas": measure_spark_schemas,
        "spark-function": measure_spark_function,
        "spark-start": measure_spark_start,
    },
    "footprint": {
        "start": measure_start,
        "idle": measure_idle,
        "threads": measure_threads,
        "failover": measure_failover,
    },
    "connectors": {"connectors": measure_connectors, "kafka": measure_kafka, "jdbc": measure_jdbc},
    "growth-functions": {"growth-functions": measure_growth_functions},
    "growth-topics": {"growth-topics": measure_growth_topics},
    "growth-state": {"growth-state": measure_growth_state},
    "growth-partitions": {
        "growth-partitions": measure_growth_partitions,
        "growth-consumers": measure_growth_consumers,
    },
}
BENCHMARKS = {name: measure for group in GROUPS.values() for name, measure in group.items()}


def chosen(groups: Sequence[str], only: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the benchmarks to run, by group: those of `groups` and those named in `only`; all if both are empty."""
    if not groups and not only:
        return [(group, list(names)) for group, names in GROUPS.items()]
    found = []
    for group, names in GROUPS.items():
        wanted = [name for name in names if group in groups or name in only]
        if wanted:
            found.append((group, wanted))
    return found
