"""Starting scripts under the probe, in copies of the project, and reading what it wrote."""
