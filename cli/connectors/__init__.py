"""``magnetar sources`` and ``magnetar sinks``."""
