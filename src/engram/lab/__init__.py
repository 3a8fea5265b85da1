"""The lab: a web page for every system, live."""
