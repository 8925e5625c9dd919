"""Print the page about all options, `docs/CONFIG.md`."""

from ottla.broker.config.documentation import page

if __name__ == "__main__":
    print(page(), end="")
