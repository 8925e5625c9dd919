"""Rules, users and passwords as people write them."""
