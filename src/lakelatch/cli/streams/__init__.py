"""What is declared of a table's streams, and what their events made of one row."""
