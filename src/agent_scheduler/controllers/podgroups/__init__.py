"""The podgroup controller."""
