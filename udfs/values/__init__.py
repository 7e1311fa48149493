"""What the keys and values of Kafka's internal topics hold: bytes to Arrow columns.

definitions       Kafka's own message definitions (``messages/``), as dataclasses
readers           a definition in one version -> a reader of its bytes, made once
internal_topics   the record of a topic -> which message it is, its key and its value
columns           Arrow arrays of keys and values -> Arrow structs
"""
