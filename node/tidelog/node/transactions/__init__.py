"""A broker's side of transactions: markers, verification, the link to the coordinator."""
