-- Where each log ends: its log end offset by the batches of the lake
-- Columns: those of a log, then
--   end_offset bigint: The offset after the last one, without those of batches with a wrong base offset; the base offset of the last file if that is higher
--   is_whole boolean: The last file of the log was decoded; false where it is left out, or could not be read
WITH listed AS (
  SELECT topic, partition, partition_dir, max(file_base_offset) AS last_file, max(end_offset) AS last_offset,
    max(CASE WHEN left_out < 0 THEN file_base_offset END) AS last_left_out
  FROM segments GROUP BY topic, partition, partition_dir
), said AS (
  SELECT topic, partition, partition_dir, max(CASE WHEN kind = 'end' THEN first_offset END) AS end_offset,
    max(CASE WHEN kind = 'unread' THEN first_offset END) AS last_unread
  FROM offset_findings WHERE kind IN ('end', 'unread') GROUP BY topic, partition, partition_dir
)
SELECT l.topic, l.partition, l.partition_dir,
  coalesce(s.end_offset, greatest(l.last_file, CASE WHEN l.last_offset < 9223372036854775807 THEN l.last_offset + 1 END)) AS end_offset,
  l.last_file > greatest(coalesce(l.last_left_out, -1), coalesce(s.last_unread, -1)) AS is_whole
FROM listed l LEFT JOIN said s ON s.topic = l.topic AND s.partition = l.partition AND s.partition_dir = l.partition_dir
