"""The `explorer` command; also `python -m explorer`."""

from explorer.cli.app import main

if __name__ == "__main__":
    main()
