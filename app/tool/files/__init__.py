"""Reading and changing files: text search for edits, patches, diffs, modification checks, locks."""
