"""Preemption as kube-scheduler's DefaultPreemption does it: who would have to go, and what nominated pods hold."""
