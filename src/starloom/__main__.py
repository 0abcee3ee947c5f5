"""`python -m starloom` is `starloom`."""

from starloom.cli.main import main

if __name__ == "__main__":
    main()
