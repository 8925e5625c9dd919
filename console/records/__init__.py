"""Records for people: decoded, filtered, read and written."""
