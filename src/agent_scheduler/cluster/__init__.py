"""Informers to state: the one state of the cluster that all schedulers of a process share."""
