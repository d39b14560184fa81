"""`python -m genmon`."""

from genmon.cli import main

if __name__ == "__main__":
    main()
