"""Tools for tests of the client and of programs that use it.

`scripted` answers requests as a test decides, without sockets or over HTTP. `virtual` runs tests in virtual time, on
the event loop of `loop`. `wires` has connections without sockets for the HTTP client, and `authority` a certificate
authority (it needs cryptography). Nothing that is shipped imports them.
"""
