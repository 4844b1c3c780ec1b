"""Many calls at once on real servers: nothing may leak, hang, or reach the wrong call."""
