"""The public surface is what the lists say, no more."""

import magnetar


def test_the_package_lists_its_public_names() -> None:
    assert sorted(magnetar.__all__) == magnetar.__all__
    for name in magnetar.__all__:
        assert getattr(magnetar, name) is not None
