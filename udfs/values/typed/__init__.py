"""Keys and values of a topic as typed columns, and the Parquet files of typed tables."""
