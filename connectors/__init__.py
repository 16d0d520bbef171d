"""The connectors included in Magnetar, one module each, and the register of all installed connectors."""
