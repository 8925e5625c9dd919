"""Work in several steps: files that say what topics and replicas should be, and restarts."""
