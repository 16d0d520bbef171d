"""Connectors that come with Magnetar, one module each, and the register of all that are installed."""
