"""What a client shows to say who it is, and how it checks the server: plugins and their parameters."""
