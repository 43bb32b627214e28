"""Clients that others wrote run against the server as they do against a real cluster."""
