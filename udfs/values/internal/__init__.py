"""Reads and writes the records of Kafka's internal topics by Kafka's own message definitions.

definitions   the definitions (``messages/``) as dataclasses
releases      the releases of Kafka whose definitions they are
readers       a definition in one version -> a reader of its bytes, made once
topics        the record of a topic -> which message it is, its key and its value
share         what a share coordinator wrote -> the state of a share partition
columns       Arrow arrays of keys and values -> Arrow structs
encode        messages of a definition -> bytes
"""
