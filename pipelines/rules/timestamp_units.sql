-- Stored timestamps that are not in milliseconds, by their size alone: a date from 1973 to 5138 in milliseconds lies in
-- none of these ranges, the same date from 1973 on in another unit in one of them
-- Columns:
--   unit string: none: a negative number, no timestamp; seconds, microseconds, nanoseconds: a wrong unit
--   lowest bigint: Lowest number of the range
--   highest bigint: Highest number of the range
SELECT unit, lowest, highest
FROM (VALUES ('none', CAST('-9223372036854775808' AS BIGINT), CAST(-1 AS BIGINT)),
  $WRONG_UNITS) AS units(unit, lowest, highest)
