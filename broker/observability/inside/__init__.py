"""What Kafka's protocol cannot tell about a broker, as JSON below `/inside/v1` on the HTTP port."""
