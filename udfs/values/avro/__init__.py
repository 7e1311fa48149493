"""Avro: schemas, payloads to canonical JSON, and columns of payloads to Arrow."""
