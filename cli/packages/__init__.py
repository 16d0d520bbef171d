"""``magnetar packages``."""
