"""The queue controller."""
