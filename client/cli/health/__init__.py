"""What is wrong with a cluster, a broker or a group, and what to change; restarts that do no harm."""
