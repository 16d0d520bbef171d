"""Security: client `credentials`, server `authentication` and `authorization`, and TLS for both."""
