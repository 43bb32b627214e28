"""Informers to state: the one picture of the cluster that all schedulers of a process share."""
