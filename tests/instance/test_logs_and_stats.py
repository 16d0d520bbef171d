"""The log of an instance and its counters."""

from __future__ import annotations

import logging
import math
import re
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import InvalidConfig, MagnetarError
from magnetar.instance.acks.failover_input import KEEP_S, POSITIONS_MAX, RecentAcks
from magnetar.instance.gate import Gate
from magnetar.instance.logs import file as log_text
from magnetar.instance.logs.file import (
    LINE_CHARACTERS_MAX,
    InstanceLog,
    LogFollower,
    LogHandler,
    LogStream,
    bounded_lines,
    rotated,
    tail,
)
from magnetar.instance.stats import METRICS_MAX, TRACEBACK_CHARACTERS_MAX, InstanceStats, format_error, reason_of

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (\w+) (.*)")


def lines_of(path: Path) -> list[tuple[str, ...]]:
    matches = [LINE.fullmatch(line) for line in path.read_text().splitlines()]
    return [match.groups() for match in matches if match is not None]


def test_every_line_has_time_and_level(tmp_path: Path) -> None:
    log = InstanceLog(tmp_path / "deep" / "f.log")
    log.write("INFO", "one\ntwo\n")
    stream = LogStream(log, "ERROR")
    print("three", "four", file=stream)
    print("unfinished", end="", file=stream)
    stream.flush()
    logger = logging.Logger("mine")
    logger.addHandler(LogHandler(log))
    logger.warning("five %d", 5)
    log.close()
    log.write("INFO", "too late")
    assert lines_of(log.path) == [
        ("INFO", "one"),
        ("INFO", "two"),
        ("ERROR", "three four"),
        ("ERROR", "unfinished"),
        ("WARNING", "[mine] five 5"),
    ]


def test_log_is_bounded_and_its_reader_crosses_the_rotation(tmp_path: Path) -> None:
    log = InstanceLog(tmp_path / "f.log", file_bytes_max=2000)
    follower = LogFollower(log.path)
    followed = ""
    for number in range(500):
        log.write("INFO", f"line {number}")
        if number % 20 == 0:
            followed += follower.read()
        assert log.path.stat().st_size <= 2000
    followed += follower.read()
    assert rotated(log.path).stat().st_size <= 2000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.log", "f.log.1"]
    assert [line.split()[-1] for line in followed.splitlines()] == [str(number) for number in range(500)]
    last = tail(log.path, 60).splitlines()
    assert [line.split()[-1] for line in last] == [str(number) for number in range(440, 500)]
    assert tail(log.path, 0) == ""
    assert tail(tmp_path / "none.log", 5) == ""
    log.close()


def test_threads_do_not_mix_inside_a_line(tmp_path: Path) -> None:
    log = InstanceLog(tmp_path / "f.log")
    stream = LogStream(log, "INFO")

    def say(word: str) -> None:
        for _ in range(200):
            print(word, word, word, file=stream)

    threads = [threading.Thread(target=say, args=(word,)) for word in ("aaa", "bbb")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert {text for _, text in lines_of(log.path)} == {"aaa aaa aaa", "bbb bbb bbb"}
    assert len(lines_of(log.path)) == 400


def test_traceback_is_cut_in_the_middle() -> None:
    error = ValueError("x" * 3 * TRACEBACK_CHARACTERS_MAX)
    text = format_error(error)
    assert len(text) < TRACEBACK_CHARACTERS_MAX + 100
    assert "characters omitted" in text


def test_stats_count_and_keep_the_latest_exceptions() -> None:
    stats = InstanceStats(0.0)
    stats.total.received = 30
    stats.count_run(30, 12, 0.3, 1234)
    for number in range(12):
        stats.user_exception(f"error {number}", number)
    stats.system_exception("sys", 99)
    status = stats.status()
    assert (status.numReceived, status.numSuccessfullyProcessed, status.numUserExceptions) == (30, 18, 12)
    assert [latest.exceptionString for latest in status.latestUserExceptions] == [f"error {n}" for n in range(2, 12)]
    assert (status.numSystemExceptions, status.latestSystemExceptions[0].msSinceEpoch) == (1, 99)
    assert round(status.averageLatency, 6) == 10
    assert status.lastInvocationTime == 1234


def test_minute_counters_begin_anew() -> None:
    stats = InstanceStats(100.0)
    stats.count_run(5, 0, 0.1, 1)
    stats.roll(159.9)
    assert stats.metrics().processedSuccessfullyTotal_1min == 5
    stats.roll(160.0)
    assert stats.metrics().processedSuccessfullyTotal_1min == 0
    stats.count_run(2, 0, 0.1, 1)
    assert stats.metrics().processedSuccessfullyTotal_1min == 2
    assert stats.metrics().processedSuccessfullyTotal == 7
    stats.roll(400.0)
    stats.count_run(1, 0, 0.1, 1)
    stats.roll(459.0)
    assert stats.metrics().processedSuccessfullyTotal_1min == 1
    stats.roll(460.0)
    assert stats.metrics().processedSuccessfullyTotal_1min == 0


def test_gate_makes_wait_and_lets_one_large_piece_in() -> None:
    gate = Gate(10, 100)
    assert gate.enter(50, 1000)
    entered = threading.Event()

    def enter() -> None:
        if gate.enter(1, 1):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.wait(0.02)
    gate.leave(50, 1000)
    assert entered.wait(60)
    thread.join()
    assert gate.enter(9, 9)
    gate.close()
    assert not gate.enter(1, 1)


def test_recent_acks_are_forgotten_by_age_and_number() -> None:
    recent = RecentAcks()
    for number in range(100):
        recent.add(("t", 0, number), float(number) / 10)
    assert recent.has(("t", 0, 99), 9.9)
    assert not recent.has(("t", 0, 0), 9.9)
    assert len(recent) == 50
    assert not recent.has(("t", 0, 99), 9.9 + KEEP_S)
    for number in range(POSITIONS_MAX + 7):
        recent.add(("u", 0, number), 9.9)
    assert len(recent) == POSITIONS_MAX
    recent.clear()
    assert len(recent) == 0


def test_metrics_are_bounded_in_number_and_length() -> None:
    stats = InstanceStats(0.0)
    said = [stats.record(f"metric {number}", 1) for number in range(METRICS_MAX + 3)]
    assert [text for text in said if text] == [said[METRICS_MAX]]
    assert f"the function has reached the limit of {METRICS_MAX} metrics" in said[METRICS_MAX]
    assert stats.record("metric 0", 2) == ""
    metrics = stats.metrics()
    assert len(metrics.userMetrics) == 2 * METRICS_MAX
    assert metrics.userMetrics["user_metric_metric 0_sum"] == 3
    stats.record("metric 1", sys.float_info.max)
    stats.record("metric 1", sys.float_info.max)
    assert math.isfinite(stats.metrics().userMetrics["user_metric_metric 1_sum"])
    for name, value, why in [
        ("a\udc80", 1, "metric name cannot be encoded as UTF-8"),
        ("", 1, "expected a non-empty printable string"),
        ("a\nb", 1, "expected a non-empty printable string"),
        ("m" * 257, 1, "metric name is 257 bytes long, above the limit of 256"),
        (5, 1, "invalid metric name 5: expected a str"),
        ("metric 0", math.nan, "invalid metric 'metric 0' nan: expected a finite number"),
        ("metric 0", -math.inf, "invalid metric 'metric 0' -inf: expected a finite number"),
    ]:
        with pytest.raises(InvalidConfig, match=why):
            stats.record(name, value)  # type: ignore[arg-type]


def test_whatever_a_function_raises_can_be_shown() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    class Code:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    stats = InstanceStats(0.0)
    for error in (ValueError("a\udc80"), Odd(), SystemExit(Code()), MagnetarError("b\udc80")):
        stats.user_exception(format_error(error), 0)
        assert reason_of(error).encode()
    stats.trouble = lambda: "c\udc80"
    assert b"a\\udc80" in stats.status().SerializeToString()


def test_text_of_any_length_costs_a_bounded_amount_of_memory_and_disk(tmp_path: Path) -> None:
    log = InstanceLog(tmp_path / "f.log")
    stream = LogStream(log, "INFO")
    texts = ["x" * (40 << 20), "\n" * (40 << 20), "é" * (20 << 20)]
    for text in texts:
        tracemalloc.start()
        try:
            print("begun", end=" ", file=stream)
            print(text, file=stream)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 24 << 20, peak
        assert f"of {len(text)} characters omitted" in log.path.read_text()
    assert log.path.stat().st_size < 2 << 20
    log.close()


def test_line_that_is_cut_says_how_much_is_missing() -> None:
    lines = bounded_lines("a\n" + "b" * (LINE_CHARACTERS_MAX + 5) + "\nc")
    assert lines[0] == "a"
    assert lines[1].endswith(f"… 5 of {LINE_CHARACTERS_MAX + 5} characters omitted")
    assert lines[2] == "c"


@given(st.text(max_size=50), st.integers(1, 40), st.integers(1, 5), st.integers(1, 5))
def test_lines_are_bounded_and_nothing_is_cut_without_a_word(
    text: str, text_max: int, lines_max: int, line_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_text, "TEXT_CHARACTERS_MAX", text_max)
        patch.setattr(log_text, "TEXT_LINES_MAX", lines_max)
        patch.setattr(log_text, "LINE_CHARACTERS_MAX", line_max)
        lines = bounded_lines(text)
    assert 1 <= len(lines) <= lines_max + 1
    is_cut = len(text) > text_max or len(text.splitlines()) > lines_max or any(
        len(line) > line_max for line in text.splitlines()
    )  # fmt: skip
    assert ("omitted" in "\n".join(lines)) == is_cut
    if not is_cut:
        assert lines == (text.splitlines() or [""])


def test_log_whose_file_was_rotated_by_another_process_goes_on_in_the_new_one(tmp_path: Path) -> None:
    one, other = (InstanceLog(tmp_path / "f.log", file_bytes_max=1000) for _ in range(2))
    for number in range(200):
        (one if number % 3 else other).write("INFO", f"line {number}")
    assert "line 199" in one.path.read_text()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5000
    one.path.unlink()
    for number in range(50):
        one.write("INFO", f"later {number}")
    assert "later 49" in one.path.read_text()
