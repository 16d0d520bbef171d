"""Counters, gauges and histograms of user code: what is refused, what is counted, and what a scrape shows."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client.client import AsyncClient
from magnetar.errors import InvalidConfig
from magnetar.instance.metric_values import CounterValue, GaugeValue, HistogramValue
from magnetar.instance.user_metrics import BUCKETS_MAX, SERIES_MAX, UserMetrics, flat
from magnetar.runtime.interface import Runtime
from magnetar.wire.functions_pb2 import MetricsData
from magnetar.worker.functions.components import FUNCTION, SINK
from magnetar.worker.functions.instances import InstanceMetrics
from magnetar.worker.rest.metrics import render
from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import until
from tests.support.instances import MakeSpec


@pytest.fixture
def metrics() -> UserMetrics:
    return UserMetrics(_not_expected)


def _not_expected(text: str) -> None:
    raise AssertionError(text)


def test_one_metric_for_a_name_and_labels(metrics: UserMetrics) -> None:
    orders = metrics.counter("orders", {"country": "de", "kind": "a"})
    assert metrics.counter("orders", {"kind": "a", "country": "de"}) is orders
    assert metrics.counter("orders", {"country": "fr", "kind": "a"}) is not orders
    orders.inc()
    orders.inc(2.5)
    depth = metrics.gauge("depth")
    depth.set(4)
    depth.dec(1)
    took = metrics.histogram("took", buckets=(1, 2))
    for value in (0.5, 1.0, 1.5, 9):
        took.observe(value)
    assert flat(metrics.records()) == {
        'orders{country="de",kind="a"}': 3.5, 'orders{country="fr",kind="a"}': 0.0, "depth": 3.0, "took_sum": 12.0,
        "took_count": 4.0,
    }  # fmt: skip
    assert took.counts == [2, 1, 1]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda m: m.counter("1x"), "expected letters"),
        (lambda m: m.counter("a b"), "expected letters"),
        (lambda m: m.counter("x\n"), "expected letters"),
        (lambda m: m.counter("x" * 257), "above the limit of 256"),
        (lambda m: m.counter("x", {"le": "1"}), "reserved"),
        (lambda m: m.counter("x", {"fqfn": "1"}), "reserved"),
        (lambda m: m.counter("x", {"__a": "1"}), "reserved"),
        (lambda m: m.counter("x", {"a-b": "1"}), "reserved"),
        (lambda m: m.counter("x", {"a": 1}), "expected a str, got int"),
        (lambda m: m.counter("x", {"a": "\ud800"}), "surrogate"),
        (lambda m: m.counter("x", description="d" * 257), "above the limit of 256"),
        (lambda m: m.gauge("there"), "is already a counter with labels a, not a gauge without labels"),
        (lambda m: m.counter("there", {"b": "1"}), "not a counter with labels b"),
        (lambda m: m.histogram("x", buckets=()), "1 to 50 increasing finite numbers"),
        (lambda m: m.histogram("x", buckets=(2, 1)), "1 to 50 increasing finite numbers"),
        (lambda m: m.histogram("x", buckets=(1, math.inf)), "1 to 50 increasing finite numbers"),
        (lambda m: m.histogram("x", buckets=range(BUCKETS_MAX + 1)), "1 to 50 increasing finite numbers"),
        (lambda m: m.histogram("there too", buckets=(1,)), "expected letters"),
        (lambda m: m.histogram("times", buckets=(1, 3)), "with buckets|and buckets 1.0, 2.0, not"),
        (lambda m: CounterValue().inc(-1), "invalid counter increment -1"),
        (lambda m: CounterValue().inc(math.nan), "invalid counter increment nan"),
        (lambda m: GaugeValue().set(math.inf), "invalid gauge value inf"),
        (lambda m: HistogramValue((1.0,)).observe(math.nan), "invalid histogram value nan"),
    ],
)
def test_what_prometheus_does_not_take_is_refused(
    metrics: UserMetrics, make: Callable[[UserMetrics], object], reason: str
) -> None:
    metrics.counter("there", {"a": "1"})
    metrics.histogram("times", buckets=(1, 2))
    with pytest.raises(InvalidConfig, match=reason):
        make(metrics)


def test_beyond_the_limit_metrics_count_and_are_not_shown() -> None:
    told: list[str] = []
    metrics = UserMetrics(told.append)
    for number in range(SERIES_MAX + 3):
        metrics.counter("users", {"id": str(number)}).inc()
    assert len(list(metrics.records())) == SERIES_MAX
    (text,) = told
    assert "publish values such as user ids to a topic" in text


def test_threads_lose_nothing(metrics: UserMetrics) -> None:
    def work(_: int) -> None:
        for _ in range(2000):
            metrics.counter("n", {"a": "b"}).inc()
            metrics.histogram("h").observe(0.5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert flat(metrics.records()) == {'n{a="b"}': 8000.0, "h_sum": 4000.0, "h_count": 8000.0}


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@given(values=st.lists(st.floats(-1e6, 1e6), max_size=30), label=TEXTS, help_text=TEXTS)
def test_a_scrape_shows_what_was_counted(values: list[float], label: str, help_text: str) -> None:
    metrics = UserMetrics(_not_expected)
    bounds = (-10.0, 0.0, 0.5, 100.0)
    counter = metrics.counter("seen_total", {"what": label}, help_text)
    histogram = metrics.histogram("size", {"what": label}, buckets=bounds)
    for value in values:
        counter.inc(abs(value))
        histogram.observe(value)
    other = UserMetrics(_not_expected)
    other.gauge("seen_total").set(7)
    text = render(
        "c",
        [
            InstanceMetrics("public/default/f:0", FUNCTION, MetricsData(metrics=metrics.records())),
            InstanceMetrics("public/default/g:1", FUNCTION, MetricsData(metrics=other.records())),
            InstanceMetrics("public/default/s:0", SINK, MetricsData(metrics=other.records())),
        ],
        [],
    ).decode()
    samples = {
        (one.name, one.labels["name"], one.labels.get("what"), one.labels.get("le")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if "_custom_" in one.name
    }
    expected: dict[tuple[str, str, str | None, str | None], float] = {
        ("pulsar_function_custom_seen_total", "f", label, None): counter.value,
        ("pulsar_function_custom_seen_gauge", "g", None, None): 7,
        ("pulsar_sink_custom_seen", "s", None, None): 7,
        ("pulsar_function_custom_size_count", "f", label, None): len(values),
        ("pulsar_function_custom_size_sum", "f", label, None): histogram.sum,
        ("pulsar_function_custom_size_bucket", "f", label, "+Inf"): len(values),
    }
    for bound in bounds:
        key = ("pulsar_function_custom_size_bucket", "f", label, str(bound))
        expected[key] = sum(value <= bound for value in values)
    assert samples == expected


CODE = """
def process(text, context):
    context.counter("words", {"first": text[0]}, "Words by their first letter.").inc()
    context.gauge("length").set(len(text))
    context.histogram("sizes", buckets=(2, 4)).observe(len(text))
    return text
"""


async def test_the_worker_is_told(any_runtime: Runtime, client: AsyncClient, make_spec: MakeSpec) -> None:
    spec = make_spec(CODE)
    (topic,) = spec.details.source.inputSpecs
    instance = await any_runtime.start(spec)
    producer = await client.create_producer(topic)
    for word in ("apple", "ant", "bee"):
        await producer.send(word.encode())
    expected = {'words{first="a"}': 2.0, 'words{first="b"}': 1.0, "length": 3.0, "sizes_sum": 11.0, "sizes_count": 3.0}

    async def are_told() -> bool:
        return flat((await instance.metrics()).metrics) == expected

    await until(are_told)


def test_sums_of_finite_numbers_stay_finite(metrics: UserMetrics) -> None:
    counter, gauge, histogram = metrics.counter("c"), metrics.gauge("g"), metrics.histogram("h")
    for _ in range(3):
        counter.inc(1e308)
        gauge.dec(1e308)
        histogram.observe(1e308)
    largest = sys.float_info.max
    assert flat(metrics.records()) == {"c": largest, "g": -largest, "h_sum": largest, "h_count": 3.0}
    gauge.inc(1e308)
    assert gauge.value == 1e308 - largest
