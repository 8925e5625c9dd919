"""Real clusters for tests; `ottla.testing` turns them into fixtures."""
