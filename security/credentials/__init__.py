"""Client-side authentication and server verification: plugins and their parameters."""
