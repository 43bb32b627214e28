"""Preemption as in kube-scheduler's DefaultPreemption: victims, and the room that nominated pods hold."""
