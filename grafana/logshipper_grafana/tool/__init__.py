"""`logshipper-grafana` and `render`: turn pages into files, or install them in a Grafana; find
faults of an installation. May import all."""
