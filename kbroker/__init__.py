"""A Kafka-wire-compatible broker: a Cython data plane that runs without the GIL, and Python around it that decides."""
