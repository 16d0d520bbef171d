"""Server-side authentication with tokens, passwords and certificates.

`settings` has the server's settings, `provider` the interface of an authentication method (subclass it for a custom
one), and `authenticator` the rules that map a connection or request to `Roles`.
"""
