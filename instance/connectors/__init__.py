"""Sources and sinks at work in an instance."""
