"""One SQL statement, or a shell of them, over a lake: answered by DuckDB or by Spark."""
