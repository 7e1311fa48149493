-- warning, sum, 0 batch: Batches that do not go on where their producer's last batch ended
-- Not what damage or the log cleaner explains: the view sequence_steps compares the sequence numbers
SELECT file, 1 AS amount, printf('position %d: producer %d, epoch %d: sequence %d follows %d (%s)', position, producer_id,
  producer_epoch, base_sequence, sequence_before, step) AS detail
FROM steps WHERE cause IS NULL
