"""Processes that run until they are stopped: configuration, lease, signals, supervision."""
