-- The rows of `transactions` that the ledger names
-- Columns: those of transactions
SELECT t.*
FROM transactions t JOIN (
  SELECT topic, partition, partition_dir, max(transactions_generation) AS generation
  FROM segments GROUP BY topic, partition, partition_dir
) l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
  AND l.generation = t.generation
