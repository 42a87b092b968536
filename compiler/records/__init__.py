"""What a build says of itself as frozen records: stages, gates, rounding and drift; reports are made of them."""
