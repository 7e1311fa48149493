-- The records of Kafka Connect's own topics that a worker reads: configurations, states, source offsets. A topic is Connect's if
-- its name has config, cfg, status, state or offset in it, and more of its records are of one of the three than not
-- Columns:
--   log_topic string: Topic of the record
--   log_partition int: Its partition
--   record_offset bigint: Offset of the record
--   record_timestamp timestamp: Its timestamp
--   segment string: Canonical URI of the segment file
--   record_key binary: The key
--   is_tombstone boolean: The record has no value
--   store string: What the topic keeps: config, status or offset
--   record struct<store:string,type:string,connector:string,task:int,other:string,config:string,count:int,state:string,worker:string,generation:int,version:string,trace:string,source_partition:string,source_offset:string,error:string>: Its fields; nothing of a session key
--   error string: Why it cannot be read; else null
WITH held AS (
  SELECT topic, partition, offset, timestamp, segment, key, value IS NULL AS is_tombstone, kafka_connect_record(key, value) AS record
  FROM committed_records
  WHERE (lower(topic) LIKE '%config%' OR lower(topic) LIKE '%cfg%' OR lower(topic) LIKE '%status%' OR lower(topic) LIKE '%state%'
      OR lower(topic) LIKE '%offset%') AND topic NOT IN $INTERNAL_TOPICS
), counted AS (
  SELECT topic, record.store AS store, count(CASE WHEN record.error IS NULL THEN 1 END) AS read_records, count(*) AS records
  FROM held GROUP BY topic, record.store
), kept AS (
  SELECT topic, store FROM (SELECT *, sum(records) OVER (PARTITION BY topic) AS topic_records FROM counted)
  WHERE store IS NOT NULL AND 2 * read_records > topic_records
)
SELECT h.topic, h.partition, h.offset, h.timestamp, h.segment, h.key, h.is_tombstone, k.store, h.record,
  CASE WHEN h.record.error IS NOT NULL THEN h.record.error WHEN h.record.store <> k.store THEN 'key: of another of Connect''s topics' END
FROM held h JOIN kept k ON k.topic = h.topic
