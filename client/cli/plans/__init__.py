"""Files that say what topics and replicas should be."""
