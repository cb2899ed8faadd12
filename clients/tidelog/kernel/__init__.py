"""The vocabulary and contracts everything else is written in; imports nothing of ours."""
