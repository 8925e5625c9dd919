"""The version of this release. Clients tell it to brokers, so it stands below all rooms."""

__version__ = "0.1.0.dev0"
