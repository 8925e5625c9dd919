"""Real clusters for tests of whatever uses one; `ottla.testing` makes fixtures of them."""
