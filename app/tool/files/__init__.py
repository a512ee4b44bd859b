"""Files as tools change them: reading, locating an edit, patches, diffs, versions seen, one writer a file."""
