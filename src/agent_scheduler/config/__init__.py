"""The configuration of a scheduler: a file in the shape of a KubeSchedulerConfiguration, and flags that override it.

What cannot be used is refused with one message that says where it stands, what was found and what is allowed.
"""

from agent_scheduler.config.errors import ConfigurationError
from agent_scheduler.config.flags import add_run_arguments
from agent_scheduler.config.load import Source, load, load_text, to_dict, write
from agent_scheduler.config.profiles import build_profiles
from agent_scheduler.config.reload import Reloader
from agent_scheduler.config.schema import Configuration

__all__ = [
    "Configuration",
    "ConfigurationError",
    "Reloader",
    "Source",
    "add_run_arguments",
    "build_profiles",
    "load",
    "load_text",
    "to_dict",
    "write",
]
