"""Reports on data quality: checks over the tables, the table of their values, and a page."""
