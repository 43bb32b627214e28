"""Controllers: each keeps one kind of object as a configuration wants it, by what it watches of the cluster.

They know neither the scheduler nor its HTTP server; `process.controllers` makes a process of them.
"""
