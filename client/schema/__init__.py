"""Serializers with schemas from a registry, which programs import as `ottla.schema`."""
