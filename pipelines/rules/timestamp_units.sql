-- Which unit a stored timestamp is in, by its size alone: the same dates from 1973 on in seconds, milliseconds,
-- microseconds and nanoseconds. Every number is in one row
-- Columns:
--   unit string: none: a negative number, no timestamp; milliseconds, as Kafka stores them; seconds, microseconds, nanoseconds: a wrong unit
--   lowest bigint: Lowest number of the range
--   highest bigint: Highest number of the range
SELECT 'none' AS unit, CAST('-9223372036854775808' AS BIGINT) AS lowest, CAST(-1 AS BIGINT) AS highest
UNION ALL SELECT 'milliseconds', 0, 999999999
UNION ALL SELECT 'seconds', 1000000000, 99999999999
UNION ALL SELECT 'milliseconds', 100000000000, 99999999999999
UNION ALL SELECT 'microseconds', 100000000000000, 99999999999999999
UNION ALL SELECT 'nanoseconds', 100000000000000000, 9223372036854775807
