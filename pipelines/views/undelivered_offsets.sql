-- Offset ranges of transactions that READ_COMMITTED consumers do not get: aborted, or of unknown outcome. Each range
-- is cut into slots of offsets, small slots for short ranges and large ones for long ranges, so that a record is
-- compared with few of the ranges of its producer, however many transactions there are
-- Columns: those of a log, then
--   producer_id bigint: Producer id
--   first_offset bigint: First offset of the transaction's data
--   last_offset bigint: Last offset of the transaction's data
--   outcome string: aborted; open for an outcome that can't be known
--   slot_bits int: 8 for ranges of about 1,000 offsets at most, 20 of 2^30, else 62: a slot holds 2 to that power offsets
--   slot bigint: Number of the slot: offset / 2^slot_bits
WITH ranges AS (
  SELECT topic, partition, partition_dir, producer_id, first_offset, last_offset, outcome
  FROM current_transactions
  WHERE first_offset IS NOT NULL AND outcome <> 'committed' AND NOT holds_last_stable_offset
)
SELECT topic, partition, partition_dir, producer_id, first_offset, last_offset, outcome, slot_bits,
  explode(sequence(shiftright(first_offset, slot_bits), shiftright(last_offset, slot_bits))) AS slot
FROM (
  -- numbers of slots are subtracted, as the difference of two offsets may be past a bigint
  SELECT *, CASE WHEN shiftright(last_offset, 8) - shiftright(first_offset, 8) <= 4 THEN 8
    WHEN shiftright(last_offset, 20) - shiftright(first_offset, 20) <= 1024 THEN 20 ELSE 62 END AS slot_bits
  FROM ranges WHERE first_offset <= last_offset
)
