"""What keys and values hold: bytes to JSON and to Arrow columns.

internal   Kafka's internal topics
apps       what Kafka Streams, Connect and MirrorMaker write
schemas    the schema registry, the wire formats, and what decoders share
avro, protobuf, json   one format each: exact readers, and readers of whole columns
typed      the typed columns and files of a topic
"""
