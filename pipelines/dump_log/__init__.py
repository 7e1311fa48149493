"""Prints what Kafka's ``DumpLogSegments`` prints of a broker's files, and what it leaves out.

payloads        the tool's decoders of keys and values
log_text        batches and records -> lines, most of them by a kernel (kernels.log_lines)
index_text      indexes, snapshots and checkpoint files -> lines
objects         the same files -> one JSON object a batch, a record, an entry

``udfs.decoder.lenient`` takes what the tool takes; ``udfs.decoder.kafka_reader`` reads a batch as it does.
"""
