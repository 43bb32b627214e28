"""A plain implementation of kube-scheduler 1.36's default profile: a file for each long rule, from dicts, uncompiled.

It is slow and simple on purpose. It is tested with recordings of the real scheduler, and the engine's vectorized
plugins are tested with it, on clusters that were not recorded.
"""

from tests.decisions.plain.decide import SCORES, Decision, decide
from tests.decisions.plain.preemption import Candidate
from tests.decisions.plain.world import Obj, Refusal, World

__all__ = ["SCORES", "Candidate", "Decision", "Obj", "Refusal", "World", "decide"]
