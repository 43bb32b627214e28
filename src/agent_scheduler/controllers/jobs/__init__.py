"""The job controller."""
