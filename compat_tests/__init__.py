"""Real clients against kbroker and against Apache Kafka: one scenario, two brokers, one answer."""
