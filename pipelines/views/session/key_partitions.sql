-- Whether keys lie in the partition that Kafka's default partitioner gives them: murmur2 of the key, modulo the number of
-- partitions. Others were sent with another partitioner, with a partition by name, or before partitions were added
-- Columns:
--   topic string: Topic
--   partitions int: Partitions of the topic in the lake: the highest number and one; all must have been decoded
--   keyed_records bigint: Data records with a key
--   elsewhere_records bigint: Those that lie in another partition
--   elsewhere_ratio double: elsewhere_records / keyed_records
--   first_partition int: Partition of the first of them by partition and offset; null without one
--   first_offset bigint: Its offset
WITH placed AS (
  SELECT r.topic, r.partition, r.offset, p.partitions, kafka_partition(r.key, p.partitions) <> r.partition AS is_elsewhere
  FROM published_records r
  JOIN (SELECT topic, least(max(partition), 2147483646) + 1 AS partitions FROM segments GROUP BY topic) p ON p.topic = r.topic
  WHERE r.key IS NOT NULL AND NOT r.is_control
), counted AS (
  SELECT topic, partitions, count(*) AS keyed_records, count(*) FILTER (WHERE is_elsewhere) AS elsewhere_records,
    min(partition) FILTER (WHERE is_elsewhere) AS first_partition,
    min_by(offset, (partition, offset)) FILTER (WHERE is_elsewhere) AS first_offset
  FROM placed GROUP BY topic, partitions
)
SELECT topic, partitions, keyed_records, elsewhere_records, elsewhere_records / CAST(keyed_records AS DOUBLE) AS elsewhere_ratio,
  first_partition, first_offset
FROM counted
