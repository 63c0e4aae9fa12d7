"""The stores and queues of this project as subjects of the contract suite."""
