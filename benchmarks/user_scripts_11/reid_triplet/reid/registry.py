class Registry(dict):
    """name -> class, filled by the decorator"""

    def register(self, name):
        def wrap(obj):
            assert name not in self, name
            self[name] = obj
            return obj
        return wrap


BACKBONES = Registry()
HEADS = Registry()
