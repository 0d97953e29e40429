"""What is written for people, held to what the program does: transcripts, the reference, the pictures."""
