"""Config access. Uses PyYAML on the cluster; the job image of the lint stage has none, hence the small reader."""
import ast


def _scalar(v):
    try:
        return ast.literal_eval(v)
    except (ValueError, SyntaxError):
        return v


def load(path, overrides=()):
    with open(path) as f:
        text = f.read()
    try:
        import yaml
        cfg = yaml.safe_load(text)
    except ImportError:
        cfg, block = {}, None
        for line in text.splitlines():
            line = line.split("#")[0].rstrip()
            if not line:
                continue
            key, _, val = line.strip().partition(":")
            if not line.startswith(" "):
                block = cfg.setdefault(key, {}) if not val.strip() else None
                if block is None:
                    cfg[key] = _scalar(val.strip())
            else:
                block[key] = _scalar(val.strip())
    for o in overrides:
        key, _, val = o.partition("=")
        sec, _, name = key.partition(".")
        if name:
            cfg[sec][name] = _scalar(val)
        else:
            cfg[sec] = _scalar(val)
    return cfg
