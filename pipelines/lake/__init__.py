"""The tables of a lake: where they lie, how they are made, how runs are committed."""
