"""Where the replay of recordings finds its world."""

from tests.support.controllers import BatchWorld as BatchWorld
from tests.support.controllers import batch_world as batch_world
from tests.support.embedded import MERGE as MERGE
