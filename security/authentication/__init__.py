"""Server-side authentication with tokens, passwords and certificates.

`settings` contains the server's settings, `provider` the interface of authentication methods (to be subclassed for
custom methods), and `authenticator` the rules that map a connection or request to `Roles`.
"""
