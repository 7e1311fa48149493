-- error, sum, 0 offset: Offsets missing between batches, neither damaged nor removed by compaction or retention
-- Not what damage, a wrong base offset, the log cleaner or retention explains: the view offset_gaps names the causes
SELECT file, offsets AS amount, 'offsets ' || first_offset || ' to ' || last_offset || ': ' || cause AS detail
FROM gaps WHERE cause IN ('missing_segment', 'unknown')
