from .shards import ShardStream, ensure_shards, make_loader

__all__ = ["ShardStream", "ensure_shards", "make_loader"]
