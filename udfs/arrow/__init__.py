"""Fills Arrow columns, and writes the data files of the tables."""
