"""What goes after a time: packages without a name."""

from __future__ import annotations

from magnetar.worker.functions.package_cleanup import UnnamedClock


def test_a_package_goes_when_it_had_no_name_for_long_enough() -> None:
    clock = UnnamedClock(10.0)
    assert clock.expired(["a", "b"], {"b"}, now=100.0) == []
    assert clock.expired(["a", "b"], {"b"}, now=109.0) == []
    assert clock.expired(["a", "b"], {"b"}, now=110.0) == ["a"]


def test_a_package_that_got_its_name_counts_anew() -> None:
    clock = UnnamedClock(10.0)
    clock.expired(["a"], set(), now=100.0)
    assert clock.expired(["a"], {"a"}, now=109.0) == []
    assert clock.expired(["a"], set(), now=111.0) == []
