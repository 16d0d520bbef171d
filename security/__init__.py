"""Who asks, what they may do, and TLS: `credentials` of clients, `authentication` and `authorization` of servers."""
