"""Reading, writing, finding and measuring records, in topics and in segment files."""
