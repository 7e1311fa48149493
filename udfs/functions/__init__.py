"""Functions over whole columns for SQL and DataFrames: Arrow arrays in, Arrow arrays out, no Spark."""
