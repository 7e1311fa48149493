"""Arrow columns and the data files of the tables."""
