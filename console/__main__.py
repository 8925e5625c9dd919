"""`python -m ottla.console`, the same as `ottla console`."""

from ottla.client.cli.main import main

if __name__ == "__main__":
    import sys

    sys.argv.insert(1, "console")
    main()
