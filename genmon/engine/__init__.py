"""One run: owns the tasks, holds the state, obeys commands. Knows no terminal."""
