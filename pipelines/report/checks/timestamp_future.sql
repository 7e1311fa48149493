SELECT b.file, b.max_timestamp_ms - epoch_ms(s.modified) AS amount, 'position ' || position || ': max timestamp '
  || make_timestamp_ms(CAST(b.max_timestamp_ms AS BIGINT)) || ', file modified '
  || make_timestamp_ms(epoch_ms(s.modified)) AS detail
FROM sound b JOIN log_segments s USING (file)
WHERE b.max_timestamp_ms < 1000000000000000 AND b.max_timestamp_ms > epoch_ms(s.modified)
