"""Security: `credentials` of clients, `authentication` and `authorization` of servers, and TLS for both."""
