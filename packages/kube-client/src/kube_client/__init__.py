"""An asyncio client of the Kubernetes API for controllers and schedulers that must know what became of each write.

Connections: `auth` finds the API server and the credentials, `http1` is the transport; after a failed request callers
know whether it was not sent or its outcome is unknown (`transport`). Reads: `reflector` keeps a collection up to date
by list and watch, `informers` several of them, and `paging` lists. Writes: `answers` is the one table of what responses
mean and `driver` the one driver that repeats requests; `bind`, `create`, `patch`, `status` and `eviction` are the
writes. `work_queue` has keys to reconcile, `authorization` reviews the users of the program's own pages, `lease` elects
a leader, and `recorder` writes events. `budget`, `pace` and `adaptive` limit rates. `testing` has the tools for tests.
"""

#: Also of the distribution. All distributions of this repository have the same version.
__version__ = "0.1.0"
