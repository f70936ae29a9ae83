"""`logshipper-grafana` and `render`: pages in, files or a Grafana that has them out; what is wrong
with an installation. May import all."""
