"""The scheduling queue: the order in which pending pods are tried, and the events that retry a refused pod.

Modeled on kube-scheduler's `backend/queue`: an activeQ, two backoffQs, a pool of unschedulable and gated pods, the
events that happened while a pod was in flight, and the nominator. `queue.SchedulingQueue` is the only interface; each
other module holds one structure.
"""
