"""What Kafka's rules say of a log, over arrays of its batches: order, gaps, transactions, start, time."""
