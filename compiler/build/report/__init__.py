"""A build as a person sees it: live lines, tables, a page with charts."""
