"""Finds the records that match conditions, in segments or in the tables of a lake."""
