"""Says whether a release of Kafka, or a worker of Connect, could load its internal topics."""
