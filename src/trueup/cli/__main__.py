"""`python -m trueup.cli`, for machines where the `trueup` script is not on the path."""

from trueup.cli import main

main()
