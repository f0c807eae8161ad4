"""The package's version and the version of what it writes."""

VERSION = "0.1.0"
MANIFEST_SCHEMA_VERSION = 1
