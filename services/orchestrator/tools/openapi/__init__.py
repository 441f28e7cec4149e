"""HTTP services as tools: each allowed operation of an OpenAPI document is one."""
