"""`python -m tonnage` is the command `tonnage`."""

from tonnage.cli.main import main

if __name__ == "__main__":
    main()
