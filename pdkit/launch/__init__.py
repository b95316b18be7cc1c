"""Starting what was rendered."""
