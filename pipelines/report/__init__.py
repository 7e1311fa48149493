"""Reports on a lake: tables computed from the decoded tables on request, and pages for people."""
