"""Plugins of Jobs, as Volcano has them: they make the hosts of all pods known to each pod. Pure."""
