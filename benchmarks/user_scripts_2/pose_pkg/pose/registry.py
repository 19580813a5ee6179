MODELS, LOSSES = {}, {}


def register(table, name=None):
    def deco(obj):
        table[name or obj.__name__.lower()] = obj
        return obj
    return deco
