"""Who uses the console: logins, sessions and their limits."""
