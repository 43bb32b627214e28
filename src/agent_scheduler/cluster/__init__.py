"""Informers and the state of the cluster that all schedulers of a process share."""
