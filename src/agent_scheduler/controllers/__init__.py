"""Controllers: each maintains one kind of object, from the cluster's watched state.

They depend neither on the scheduler nor on its HTTP server; `process.controllers` runs them in a process.
"""
