"""What a shell command would run and reach, read from its text: each simple command, however wrapped, and each path outside."""
