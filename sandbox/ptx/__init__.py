"""The PTX language: syntax tree, parser, printer, instruction families, candidate files and launch plans."""
