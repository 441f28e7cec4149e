"""What agents keep about a user beyond one conversation: written with consent, listed and erased by the user."""
