"""Values of the Kubernetes API, and files of settings: what clients and servers of it both need.

Values: `quantity`, `times`, `durations`, and `celtypes` (quantities, versions and the functions that Kubernetes adds to
CEL). Objects: `wire` has the base of their structs, `salvage` decodes the valid parts of one with an unexpected form,
`nesting` reads JSON that is nested too deeply to be decoded, and `validation` checks names and pod templates. Files of
settings: `document` reads YAML and keeps the line of each value, `values` has the types that settings are declared
with, `codec` converts plain data to msgspec structs and back, and `errors` has the exceptions, whose messages name the
place, what was found and what is allowed.

All modules are pure: they use no event loop, clock, random numbers or environment.
"""

#: Also of the distribution. All distributions of this repository have the same version.
__version__ = "0.1.0"
