"""A SQL shell on the tables, views and functions of a lake."""
