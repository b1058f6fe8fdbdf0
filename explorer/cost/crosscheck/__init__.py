"""What other counters print for one block and pass, and why it is not what is counted here."""
