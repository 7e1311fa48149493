-- Offset ranges of transactions that READ_COMMITTED consumers do not get: aborted, or of unknown outcome. Each range
-- is cut into slots of offsets, small slots for short ranges and large ones for long ranges, so that a record is
-- compared with few of the ranges of its producer, however many transactions there are
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   producer_id bigint: Producer id
--   first_offset bigint: First offset of the transaction's data
--   last_offset bigint: Offset of its marker; of its last data where the marker was never seen
--   outcome string: aborted; open for an outcome that can't be known
--   slot_bits int: 8 for ranges of up to 1,024 offsets, else 20: a slot holds 2 to that power offsets
--   slot bigint: Number of the slot: offset / 2^slot_bits
SELECT topic, partition, partition_dir, producer_id, first_offset, last_offset, outcome, slot_bits,
  explode(sequence(shiftright(first_offset, slot_bits), shiftright(last_offset, slot_bits))) AS slot
FROM (
  SELECT topic, partition, partition_dir, producer_id, first_offset, outcome,
    coalesce(marker_offset, last_offset) AS last_offset,
    CASE WHEN coalesce(marker_offset, last_offset) - first_offset < 1024 THEN 8 ELSE 20 END AS slot_bits
  FROM current_transactions
  WHERE first_offset IS NOT NULL AND outcome <> 'committed' AND NOT holds_last_stable_offset
)
