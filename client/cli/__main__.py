"""Run the command line where its script is not installed: `python -m ottla.client.cli`."""

from ottla.client.cli.main import program

if __name__ == "__main__":
    program()
