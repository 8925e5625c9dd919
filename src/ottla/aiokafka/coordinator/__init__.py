"""The package `aiokafka.coordinator`."""
