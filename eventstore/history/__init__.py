"""The reading side: followers of a log, the catalogue of what was found, analytics."""
