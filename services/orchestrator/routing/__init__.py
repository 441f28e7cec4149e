"""The router in front of an agent: small talk and what is off the subject never reach it. It fails open."""
