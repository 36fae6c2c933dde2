"""What several test modules share: cases, toy models, small data and the networks that serve as oracles."""
