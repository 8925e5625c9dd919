"""Copies topics with their offsets, options, ACLs and groups from one cluster to another, as `ottla mirror` does."""
