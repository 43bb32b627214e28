"""Recorded decisions about devices, and a reading of the API's documentation that judges allocations by itself."""
