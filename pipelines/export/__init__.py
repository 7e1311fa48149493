"""Writes the committed records of one topic to one file, for a colleague or a BI tool."""
