"""The version of covan, for `covan --version` and for the artifacts that it writes."""

__version__ = "0.1.0"
