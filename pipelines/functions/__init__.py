"""Functions for SQL and DataFrames, registered in a session."""
