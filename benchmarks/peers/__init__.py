"""The same turn through what others have built, beside ours, on the same servers in the same run."""
