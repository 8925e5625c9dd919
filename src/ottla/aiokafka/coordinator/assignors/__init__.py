"""The package `aiokafka.coordinator.assignors`."""
