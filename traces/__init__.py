"""What happened: events, blobs, records and the store that keeps them."""
