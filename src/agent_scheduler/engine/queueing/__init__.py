"""The scheduling queue: which pending pod is tried next, and which event makes a refused pod worth another try.

Modelled on kube-scheduler's `backend/queue`: an activeQ, two backoffQs, a pool of unschedulable and gated pods,
the events that happened while a pod was in flight, and the nominator. `queue.SchedulingQueue` is the only door;
the other modules hold one structure each.
"""
