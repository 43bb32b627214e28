"""Admission: what may change or refuse a write on its way, after who makes it may, and before it is stored.

`plugins` are those that are compiled into a real server; `attributes`, `configured`, `matching`, `webhooks` and
`policies` are what configurations and policies ask for.
"""
