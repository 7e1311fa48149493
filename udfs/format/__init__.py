"""Declares the bytes of a segment and the columns of the tables, each named once."""
