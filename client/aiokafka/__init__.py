"""aiokafka's API on our clients, which programs import as `ottla.aiokafka`."""
