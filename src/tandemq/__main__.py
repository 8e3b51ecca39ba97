"""`python -m tandemq` is the `tandemq` command."""

from tandemq.cli.main import main

main()
