-- The records that a READ_COMMITTED consumer reads: no control records, no records of transactions that were
-- aborted or whose outcome can't be known, none at or after the last stable offset of the log, none below its log start
-- Columns: those of records
WITH short AS (
  SELECT * FROM undelivered_offsets WHERE slot_bits = 8
), long AS (
  SELECT * FROM undelivered_offsets WHERE slot_bits = 20
), endless AS (
  SELECT * FROM undelivered_offsets WHERE slot_bits = 62
), begins AS (
  SELECT * FROM log_starts WHERE is_cut
)
SELECT /*+ BROADCAST(short), BROADCAST(long), BROADCAST(endless), BROADCAST(held), BROADCAST(begins) */ r.*
FROM records r
ANTI JOIN short ON short.topic = r.topic AND short.partition = r.partition
  AND short.partition_dir = substring(r.segment, 1, length(r.segment) - 25) AND short.producer_id = r.producer_id
  AND r.is_transactional AND short.slot = shiftright(r.offset, 8)
  AND r.offset BETWEEN short.first_offset AND short.last_offset
ANTI JOIN long ON long.topic = r.topic AND long.partition = r.partition
  AND long.partition_dir = substring(r.segment, 1, length(r.segment) - 25) AND long.producer_id = r.producer_id
  AND r.is_transactional AND long.slot = shiftright(r.offset, 20)
  AND r.offset BETWEEN long.first_offset AND long.last_offset
ANTI JOIN endless ON endless.topic = r.topic AND endless.partition = r.partition
  AND endless.partition_dir = substring(r.segment, 1, length(r.segment) - 25) AND endless.producer_id = r.producer_id
  AND r.is_transactional AND endless.slot = shiftright(r.offset, 62)
  AND r.offset BETWEEN endless.first_offset AND endless.last_offset
ANTI JOIN last_stable_offsets held ON held.topic = r.topic AND held.partition = r.partition
  AND held.partition_dir = substring(r.segment, 1, length(r.segment) - 25) AND r.offset >= held.last_stable_offset
ANTI JOIN begins ON begins.topic = r.topic AND begins.partition = r.partition
  AND begins.partition_dir = substring(r.segment, 1, length(r.segment) - 25) AND r.offset < begins.log_start_offset
WHERE NOT r.is_control
