"""``recover``: copies of partitions found in sources, compared, healed, and written as one log."""
