"""Commands for a table as a whole: making, showing, checking and changing it."""
