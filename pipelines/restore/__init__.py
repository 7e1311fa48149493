"""``kafka-log-lake restore``: the records of a lake into a live cluster, each once, proven one by one."""
