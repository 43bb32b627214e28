"""kube-scheduler 1.36's default profile, read plainly: a file for each rule of more than a few lines, dicts in,
nothing compiled.

It is slow and obvious on purpose. Recordings of the real scheduler judge it, and it judges the engine's vectorised
plugins, on clusters that nobody recorded.
"""

from tests.decisions.plain.decide import SCORES, Decision, decide
from tests.decisions.plain.preemption import Candidate
from tests.decisions.plain.world import Obj, Refusal, World

__all__ = ["SCORES", "Candidate", "Decision", "Obj", "Refusal", "World", "decide"]
