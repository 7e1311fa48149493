"""Where segments are: what ``--source`` names, and what lies there."""
