"""What runs inside the sandbox. Standard library only: it is copied in alone and never imports the suite."""
