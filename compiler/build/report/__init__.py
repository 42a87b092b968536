"""Shows a build to people: as live progress lines, as tables, and as an HTML page with charts."""
