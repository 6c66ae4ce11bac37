"""What a conversation with a person is, whichever face shows it: its lines, commands, notes and safe text."""
