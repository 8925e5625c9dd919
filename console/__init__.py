"""The console: a web page and a JSON API to see and run a cluster."""
