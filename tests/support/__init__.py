"""What tests share: servers, endpoints, proxies, recordings, and the subjects of the contracts."""
