"""The command `ottla`."""
