"""Sources and sinks running in an instance."""
