-- What compression saves, by topic and codec: records as stored against records as producers gave them
SELECT s.topic, b.compression, CAST(sum(b.payload_bytes) AS BIGINT) AS stored,
  CAST(sum(b.uncompressed_bytes) AS BIGINT) AS expanded
FROM sound b JOIN log_segments s USING (file) WHERE NOT b.is_control
GROUP BY s.topic, b.compression ORDER BY expanded DESC, s.topic, b.compression
