"""Jobs as runs of other trackers: TensorBoard and MLflow."""
