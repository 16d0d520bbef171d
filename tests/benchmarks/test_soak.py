"""What a soak says of what it found: `benchmarks/soak/verdict.py`, and its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.real_input import APPLICATION, messages_of
from benchmarks.soak.minutes import Life, Minute
from benchmarks.soak.run import SECONDS
from benchmarks.soak.servers import DEAD, EXACT, LEAST, OUTPUTS
from benchmarks.soak.settings import Settings, settings_of
from benchmarks.soak.verdict import Counts, Outcome, judge

MESSAGES = messages_of(APPLICATION, 1003)
UNLUCKY = (0, 1000)
TIMES = 3


def payloads(*, without: tuple[int, ...] = ()) -> dict[bytes, int]:
    return {message.payload: TIMES for number, message in enumerate(MESSAGES) if number not in without}


def keys(*, without: tuple[int, ...] = ()) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, message in enumerate(MESSAGES):
        if number not in without:
            found[message.key or ""] = found.get(message.key or "", 0) + TIMES
    return found


def counts() -> Counts:
    dead = {MESSAGES[number].payload: TIMES for number in UNLUCKY}
    return Counts(
        payloads=payloads(),
        keys=keys(),
        outputs={OUTPUTS[LEAST]: payloads(), OUTPUTS[EXACT]: payloads(without=UNLUCKY), DEAD: dead},
        states={
            LEAST: {**keys(), "dead letters": 0},
            EXACT: {**keys(without=UNLUCKY), "dead letters": len(UNLUCKY) * TIMES},
        },
        again=5,
    )


def minute(number: int, *, rate: float = 1000.0, memory: float = 300.0, disk: float = 400.0) -> Minute:
    processed = {name: int(rate * 60) for name in OUTPUTS}
    return Minute(number, 60.0, processed, dict.fromkeys(OUTPUTS, 5), {"broker": memory}, 12.0, 0.5, disk, ["broker"])


def outcome(**changed: object) -> Outcome:
    full = Outcome(1000.0, 2000.0, 1900.0, [minute(n) for n in range(12)], [], counts())
    return replace(full, **changed)  # type: ignore[arg-type]


def life(growth_mib_a_minute: float, minutes: int = 4) -> Life:
    return Life("broker", [(second, 100 + growth_mib_a_minute * second / 60) for second in range(0, 60 * minutes, 2)])


def test_nothing_is_missed_when_all_is_as_it_was() -> None:
    verdict = judge(outcome(lives=[life(0.5)]))
    assert verdict.missed == []
    assert any(note.startswith("memory of one broker") for note in verdict.notes)


def later(change: Callable[[int], Minute]) -> list[Minute]:
    return [minute(n) if n < 8 else change(n) for n in range(12)]


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"minutes": later(lambda n: minute(n, rate=940))}, "rate of at_least_once"),
        ({"minutes": [minute(n, rate=900) for n in range(12)]}, "rate of effectively_once"),
        ({"minutes": later(lambda n: minute(n, memory=316))}, "memory of all processes"),
        ({"minutes": later(lambda n: minute(n, disk=510))}, "data and logs"),
        ({"lives": [life(5)]}, "memory of one broker"),
    ],
)
def test_what_gets_worse_is_missed_by_name(changed: dict[str, object], cause: str) -> None:
    assert any(line.startswith(cause) for line in judge(outcome(**changed)).missed)


def test_a_short_soak_judges_counts_only() -> None:
    verdict = judge(outcome(minutes=[minute(n, rate=1) for n in range(11)]))
    assert verdict.missed == []
    assert "rates, memory and disk were not checked, which requires 12 minutes" in verdict.notes


def test_a_small_process_may_take_a_few_mebibytes_more() -> None:
    small = Life("state store", [(second, 20 + second / 60) for second in range(0, 240, 2)])
    assert judge(outcome(lives=[small])).missed == []
    larger = Life("state store", [(second, 20 + second / 20) for second in range(0, 240, 2)])
    assert [line.partition(":")[0] for line in judge(outcome(lives=[small, larger, larger])).missed] == [
        "memory of one state store"
    ]


def test_a_process_that_died_young_says_nothing_about_growth() -> None:
    assert judge(outcome(lives=[life(50, minutes=2)])).missed == []


PAYLOAD, LAST_KEY = MESSAGES[1].payload, MESSAGES[1].key or ""


@pytest.mark.parametrize(
    ("part", "name", "key", "by", "cause"),
    [
        ("outputs", OUTPUTS[EXACT], PAYLOAD, 1, "outputs of effectively_once"),
        ("outputs", OUTPUTS[EXACT], PAYLOAD, -1, "outputs of effectively_once"),
        ("outputs", OUTPUTS[EXACT], b"unknown", 1, "outputs of effectively_once"),
        ("outputs", DEAD, MESSAGES[0].payload, -1, "dead letters of effectively_once"),
        ("states", EXACT, LAST_KEY, 1, "counters of effectively_once"),
        ("states", EXACT, "dead letters", -1, "counters of effectively_once"),
        ("outputs", OUTPUTS[LEAST], PAYLOAD, -1, "outputs of at_least_once"),
        ("outputs", OUTPUTS[LEAST], PAYLOAD, 6, "outputs of at_least_once"),
        ("outputs", OUTPUTS[LEAST], b"unknown", 1, "outputs of at_least_once"),
        ("states", LEAST, LAST_KEY, -1, "counters of at_least_once"),
        ("states", LEAST, LAST_KEY, 6, "counters of at_least_once"),
    ],
)
def test_each_wrong_count_is_missed(part: str, name: str, key: bytes | str, by: int, cause: str) -> None:
    found = counts()
    changed = getattr(found, part)[name]
    changed[key] = changed.get(key, 0) + by
    (missed,) = judge(outcome(counts=found)).missed
    assert missed.startswith(cause)
    assert "\n" not in missed


def test_what_is_at_least_once_may_count_again_as_often_as_kills_allow() -> None:
    found = counts()
    found.outputs[OUTPUTS[LEAST]][PAYLOAD] += 5  # type: ignore[index]
    found.states[LEAST][LAST_KEY] += 5  # type: ignore[index]
    assert judge(outcome(counts=found)).missed == []


def test_settings_of_a_soak() -> None:
    given = {"MAGNETAR_SOAK_S": "60", "MAGNETAR_SOAK_SEED": "4", "MAGNETAR_SOAK_KILLS": "0"}
    assert settings_of(given, SECONDS) == Settings(60.0, 4, kills=False)
    assert settings_of({}, SECONDS).seconds == 1800
    assert Settings(1800, 1).minute_s == 60
    assert Settings(40, 1).minute_s == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAGNETAR_SOAK_S", "long"),
        ("MAGNETAR_SOAK_S", "3"),
        ("MAGNETAR_SOAK_S", "nan"),
        ("MAGNETAR_SOAK_S", "inf"),
        ("MAGNETAR_SOAK_SEED", "-1"),
        ("MAGNETAR_SOAK_KILLS", "yes"),
    ],
)
def test_wrong_settings_of_a_soak_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name}={value}"):
        settings_of({name: value}, SECONDS)
