"""What any room may stand on: files, messages between processes, signals. Nothing here knows of compilers or models."""
