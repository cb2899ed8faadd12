"""`python -m tidelog.tools` is the command `tidelog`."""

from tidelog.tools.cli import main

if __name__ == "__main__":
    main()
