"""The command line: one file per verb, each thin over the library."""
