-- What can't be read of each internal topic: records of a type or version that our definitions do not know or that are
-- damaged, and damaged ranges of its logs. Answers that are worked out from several of its records may lack something then.
-- A topic without any is not here
-- Columns:
--   internal_topic string: Name of the internal topic
--   cluster string: As in the view of the topic (`log_clusters`)
--   unread_records bigint: Records that can't be read
--   damaged_ranges bigint: Rows in quarantine
--   first_error string: Why the first of the records can't be read; null without one
WITH counted AS (
  SELECT topic, cluster, count(*) AS unread_records, 0 AS damaged_ranges, min_by(error, (partition, offset)) AS first_error
  FROM (
    SELECT topic, cluster, partition, offset, d.error AS error, d.value AS value
    FROM (SELECT *, kafka_internal_record(topic, key, value) AS d FROM internal_records)
  )
  WHERE error IS NOT NULL AND value IS NULL -- surplus bytes do not keep a broker from reading a value
  GROUP BY topic, cluster
  UNION ALL
  SELECT q.topic, l.cluster, 0, count(*), NULL
  FROM published_quarantine q JOIN log_clusters l ON l.topic = q.topic AND l.partition = q.partition
    AND l.partition_dir = q.partition_dir AND l.internal_topic = q.topic
  GROUP BY q.topic, l.cluster
)
SELECT topic AS internal_topic, cluster, CAST(sum(unread_records) AS BIGINT) AS unread_records,
  CAST(sum(damaged_ranges) AS BIGINT) AS damaged_ranges, max(first_error) AS first_error
FROM counted GROUP BY topic, cluster
