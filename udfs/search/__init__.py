"""Which records match: conditions on columns, and which batches can hold a match."""
