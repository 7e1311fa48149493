-- What the broker's files said last of each log: the newest row of `checkpoints` of each folder
-- Columns: those of checkpoints
SELECT c.* FROM (
  SELECT *, row_number() OVER (PARTITION BY partition_dir ORDER BY read_at DESC) AS age FROM checkpoints
) c WHERE age = 1
