"""Models that users bring: kept per user, their keys sealed, their URLs held to public addresses."""
