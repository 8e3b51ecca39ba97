"""A broker's place in its group: which role it plays, who reigns, what it tells the others and its operator."""
