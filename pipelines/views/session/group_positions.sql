-- Where each group stands in each partition, by the last of its commits that can be read. A group whose commits were all
-- deleted has no row
-- Columns:
--   group, topic, partition: as in consumer_offsets
--   committed_offset bigint: The next offset that the group will read; null where no commit of it can be read
--   commit_timestamp timestamp: When it was committed
--   unread_commits bigint: Later commits of the group to this partition that can't be read: it may be further
--   cluster: as in consumer_offsets
WITH said AS (
  SELECT *, max(CASE WHEN is_read THEN record_offset END) OVER (PARTITION BY cluster, `group`, topic, partition) AS last_read
  FROM consumer_offsets
), commits AS (
  SELECT `group`, topic, partition, CASE WHEN is_read THEN committed_offset END AS committed_offset,
    CASE WHEN is_read THEN commit_timestamp END AS commit_timestamp,
    count(CASE WHEN NOT is_read AND record_offset > coalesce(last_read, -1) THEN 1 END)
      OVER (PARTITION BY cluster, `group`, topic, partition) AS unread_commits,
    cluster,
    row_number() OVER (PARTITION BY cluster, `group`, topic, partition
      ORDER BY CASE WHEN is_read THEN 0 ELSE 1 END, record_offset DESC, segment) AS age
  FROM said
)
SELECT `group`, topic, partition, committed_offset, commit_timestamp, unread_commits, cluster
FROM commits WHERE age = 1 AND (unread_commits > 0 OR committed_offset IS NOT NULL)
