"""What Kafka's ``DumpLogSegments`` prints of a broker's files, and what it leaves out.

lenient         a segment decoder that takes what the tool takes: a wrong checksum stops nothing
kafka_reader    one batch as the tool reads it: record after record, up to what Kafka's library refuses
payloads        the tool's decoders of keys and values
log_text        batches and records -> lines, most of them by a kernel (kernels.log_lines)
index_text      indexes, snapshots and checkpoint files -> lines
objects         the same files -> one JSON object a batch, a record, an entry
"""
