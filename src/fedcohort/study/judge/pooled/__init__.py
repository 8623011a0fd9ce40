"""What predictions are held against, one module for each kind of task."""
