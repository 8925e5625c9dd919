"""What the console knows of a cluster, from Kafka's protocol and from the brokers' HTTP ports."""
