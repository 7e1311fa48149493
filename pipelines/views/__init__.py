"""The views of a lake and the functions for SQL, registered in a session or in a catalog."""
