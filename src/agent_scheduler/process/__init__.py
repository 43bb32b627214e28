"""Processes that run until they are told to end: configuration, lease, signals, supervision."""
