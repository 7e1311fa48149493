-- What could not be read, by reason: damaged ranges of log files, and keys and values that no schema or kind decodes
SELECT 'damaged ranges', reason, CAST(count(*) AS BIGINT) FROM log_damage GROUP BY reason
UNION ALL
SELECT CASE e.side WHEN 'key' THEN 'keys' ELSE 'values' END, e.reason, CAST(count(*) AS BIGINT)
FROM value_errors e JOIN log_segments s USING (topic, partition, segment) GROUP BY ALL
ORDER BY ALL
