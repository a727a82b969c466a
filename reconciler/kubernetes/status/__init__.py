"""What Quorate says inside the cluster: conditions of pods, Events, and the queues as objects."""
