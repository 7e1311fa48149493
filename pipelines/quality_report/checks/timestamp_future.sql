-- warning, max, 3600000 ms: How far a timestamp lies after the file's modification
-- Whatever the unit is: a broker keeps the segment. A file modified before 2011 proves nothing (batch_times). The threshold
-- is message.timestamp.after.max.ms of Kafka 4; before it was unlimited
SELECT file, newest_ms - modified_ms AS amount, 'position ' || position || ': max timestamp '
  || CASE WHEN newest_ms < 253402300800000 THEN CAST(make_timestamp_ms(newest_ms) AS VARCHAR) ELSE newest_ms || ' ms' END
  || ', file modified ' || make_timestamp_ms(modified_ms) AS detail
FROM log_times WHERE newest_ms > modified_ms
