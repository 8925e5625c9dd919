"""What every command uses: options, target cluster, tables, errors, progress."""
