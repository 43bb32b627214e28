"""Profiles: which plugins run at which point, guarded."""
