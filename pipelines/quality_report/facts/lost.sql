-- What is lost in all logs, and how many are zeros alone, or end in an incomplete batch
SELECT CAST(coalesce(sum(offsets), 0) AS HUGEINT), CAST(coalesce(sum(misplaced), 0) AS HUGEINT),
  count(*) FILTER (is_end_lost),
  (SELECT count(DISTINCT log) FROM log_segments WHERE tail = 'zeros'
    AND log NOT IN (SELECT log FROM log_segments WHERE batches > 0)),
  (SELECT count(DISTINCT log) FROM log_segments WHERE tail = 'torn'),
  CAST(coalesce(sum(at_start), 0) AS HUGEINT)
FROM lost
