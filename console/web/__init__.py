"""What every route of the console shares: the table's rows, requests, problems and protection."""
