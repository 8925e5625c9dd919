"""Checks of any cluster that speaks Kafka's protocol: `ottla certify`.

They send requests as the protocol has them, without the producer and the consumer: those would hide what a broker does.
"""
