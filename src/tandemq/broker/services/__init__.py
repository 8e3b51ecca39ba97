"""What a master does by itself: delayed messages, timers and transaction checks."""
