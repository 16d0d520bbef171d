"""How a server finds out who asks: providers for tokens, passwords and certificates.

`settings` has what a server can be told, `provider` the interface of one method (own ones are classes of it),
`authenticator` the rules by which a connection or a request becomes `Roles`.
"""
