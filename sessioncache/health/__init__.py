"""The state of an installation: both tiers are examined, and each thing found is judged.  Nothing is changed."""
