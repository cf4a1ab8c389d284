"""What a table is: making, showing, checking and changing it."""
