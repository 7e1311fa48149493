-- warning, sum, 0 bytes: Bytes of sound batches of message formats 0 and 1
-- A broker that stores magic 0 or 1 converts what newer producers send. Kafka 4.0 still reads them (KIP-724)
SELECT file, size_bytes AS amount, printf('position %d: magic %d', position, magic) AS detail
FROM sound WHERE magic < 2
