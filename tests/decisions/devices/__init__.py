"""Recorded decisions about devices, and an implementation of the API's documentation that validates allocations."""
