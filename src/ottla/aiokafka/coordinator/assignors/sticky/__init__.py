"""The package `aiokafka.coordinator.assignors.sticky`."""
