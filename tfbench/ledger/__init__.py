"""The facts of a run: Arrow schemas, writer, and the run bundle on disk."""
