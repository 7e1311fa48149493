"""The steps of ``decode_batches`` and ``ingest_raw``: runs a plan, judges the reports, commits the tables."""
