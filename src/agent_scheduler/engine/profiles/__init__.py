"""Profiles: the plugins at each point, with guards for those of other distributions."""
