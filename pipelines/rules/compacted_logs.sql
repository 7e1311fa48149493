-- The logs that show that the log cleaner ran over them: fewer records than offsets in a batch, a delete horizon, or offsets
-- missing between batches of a segment without damage there, which what follows confirms; or `cleaner-offset-checkpoint`
-- of the same disk says so, or the topic is one that brokers compact. A compacted log that shows nothing of it is not here
-- Columns: those of a log
SELECT topic, partition, partition_dir FROM offset_findings WHERE kind = 'compacted'
