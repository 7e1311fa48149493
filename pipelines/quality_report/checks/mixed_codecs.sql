-- warning, topic, 1 codec: Different codecs in one topic; no compression counts as one
SELECT s.topic, count(DISTINCT b.compression) AS amount,
  string_agg(DISTINCT b.compression, ', ' ORDER BY b.compression) AS detail
FROM sound b JOIN log_segments s USING (file) WHERE NOT b.is_control GROUP BY s.topic
