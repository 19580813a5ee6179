"""What a call of the script does to the world outside its process: what it is, of each call of a
library.

What a library call does is known by its name, that of a method by the class that made the object. A
call whose effects are not known, and whose result nothing uses, is one that the rule must not
repeat in several processes: it is ``unknown``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.model.calls import first_argument, stands_alone
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.syntax import is_text
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Partial,
    Reason,
    Ref,
    Seq,
    Tensor,
    Unknown,
    Values,
    all_of,
    const,
)

# Nothing happens outside the process, or what happens may happen in each (reading a file, a
# warning).
HARMLESS = tuple("""builtins. torch. torchvision. torchaudio. numpy. math. random. time. copy. collections.
    itertools. functools. argparse. re. string. datetime. typing. operator. warnings. json.
    pickle. csv. yaml. os.path. os.environ. os.getenv os.getcwd os.listdir os.walk os.scandir
    os.getpid os.cpu_count os.stat os.sched_getaffinity os.fspath os.get_terminal_size glob.
    pathlib. sys. gc. platform. socket.gethostname contextlib. dataclasses. enum. abc. types.
    uuid. hashlib. io. statistics. fractions. decimal. heapq. bisect. inspect. traceback.format
    logging. sklearn. scipy. pandas. PIL. cv2. skimage. imageio. h5py. einops. timm.
    transformers. tokenizers. datasets. albumentations. matplotlib. seaborn. networkx. nltk.
    tqdm. torchtext. torchmetrics. psutil. colorama. termcolor. tabulate. prettytable.
    multiprocessing.cpu_count importlib. struct. textwrap. pprint.pformat nibabel. librosa.
    soundfile. gym. gymnasium. thop. fvcore.""".split())  # fmt: skip

# For one process only.
GUARDED = re.compile(
    r"builtins\.print|pprint\.(pprint|pp)|(builtins|rich)\.print|sys\.(stdout|stderr)\.\w+|traceback\.print_\w+|"
    r"torch\.(save|jit\.save|onnx\.export)|torchvision\.utils\.save_image|torchvision\.io\.write_\w+|torchaudio\.save|"
    r"safetensors\.torch\.save_\w+|numpy\.save\w*|scipy\.io\.(savemat|wavfile\.write)|pickle\.dump|joblib\.dump|json\.dump|yaml\.(safe_)?dump|"
    r"dill\.dump|soundfile\.write|nibabel\.save|"
    r"shutil\.(copy\w*|move|rmtree|make_archive)|os\.(mkdir|makedirs|remove|unlink|rename|replace|rmdir|removedirs|symlink|link|chmod|utime)|"
    r"wandb\.(init|log|watch|finish|save|alert|config\.update|run\.\w+|summary\.\w+)|mlflow\.\w+|"
    r"imageio(\.v2|\.v3)?\.(imwrite|imsave|mimsave|mimwrite)|cv2\.(imwrite|imshow|waitKey)|skimage\.io\.imsave|"
    r"matplotlib\.(pyplot|image)\.(savefig|show|imsave|pause)|tqdm(\.\w+)*\.write|"
    r"logging\.(debug|info|warning|warn|error|critical|exception|log)|"
    r"torchsummary\.summary|torchinfo\.summary|nltk\.download"
)
METHODS = re.compile(
    r"logging\.(Logger|LoggerAdapter)\.(debug|info|warning|warn|error|critical|exception|log)|"
    r"torch\.utils\.tensorboard(\.writer)?\.SummaryWriter\.\w+|tensorboardX(\.writer)?\.SummaryWriter\.\w+|tensorboard_logger\.\w+|"
    r"pathlib\.(Posix|Pure)?Path\.(mkdir|write_text|write_bytes|unlink|rmdir|rename|replace|touch|symlink_to)|"
    r"matplotlib\.[\w.]+\.(savefig|show)|PIL\.[\w.]+\.(save|show)|pandas\.[\w.]+\.to_(csv|excel|json|pickle|parquet|hdf|html|latex|feather)|"
    r"torchvision\.transforms\.[\w.]+\.save|tqdm(\.\w+)*\.write|torch\.jit\.[\w.]+\.save|numpy\.[\w.]+\.(tofile|dump)|"
    r"wandb\.[\w.]+\.(log|finish|watch|save)|mlflow\.[\w.]+|torch\.profiler\.[\w.]+\.export_\w+"
)
WRITERS = re.compile(
    r"(torch\.utils\.tensorboard|tensorboardX)(\.writer)?\.SummaryWriter|wandb\.init"
)
BARS = re.compile(r"tqdm(\.\w+)*\.(tqdm|trange)")
# What only shows something; what may put a log elsewhere; what does so where it is told to.
SHOWS = re.compile(
    r"(builtins|rich)\.print|pprint\.(pprint|pp)|sys\.(stdout|stderr)\.(write|flush)|"
    r"tqdm(\.\w+)*\.(write|set_postfix|set_postfix_str|set_description|set_description_str)|"
    r"logging\.(Logger\.|LoggerAdapter\.)?(debug|info)"
)
KEEPS_LOGS = re.compile(r"logging\.(config|handlers|FileHandler)\b.*")
SHOWS_WHERE = re.compile(rf"logging\.(StreamHandler|basicConfig)|{BARS.pattern}")
# What only computes; what asks for the time, or what is set, besides.
COMPUTES = re.compile(
    r"math\.[\w.]+|numpy\.(?!random|save|load)\w+|torch\.cuda\.is_available|"
    r"torch\.nn\.functional\.(cross_entropy|\w+_loss)|"
    r"builtins\.(float|int|round|abs|min|max|sum|pow|str|repr|format|len|bool|dict|list|tuple|range|zip|sorted|enumerate|isinstance)|collections\.OrderedDict"
)
TELLS = re.compile(
    rf"(time|datetime)\.(?!sleep)[\w.]+|torch\.cuda\.(max_)?memory_\w+|{COMPUTES.pattern}|"
    r"torch\.optim\.lr_scheduler\.\w+\.(get_last_lr|get_lr)"
)
DOWNLOADS = re.compile(
    r"(torchvision|torchaudio)\.datasets\.\w+|torch\.hub\.load|urllib\.request\.urlretrieve|torchtext\.datasets\.\w+"
)
FORBIDDEN = re.compile(
    r"builtins\.input|os\.(system|popen|fork|kill|exec\w*|spawn\w*|_exit|chdir)|subprocess\.\w+|multiprocessing\.(Process|Pool|Queue|Manager)|"
    r"torch\.multiprocessing\.\w+|threading\.\w+|concurrent\.\w[\w.]*|socket\.socket|smtplib\.\w+|requests\.\w+|gdown\.\w+|ftplib\.\w+|"
    r"urllib\.request\.(urlopen|Request)|builtins\.(exec|eval|breakpoint)|pdb\.\w+|signal\.\w+|atexit\.\w+|optuna\.\w+|ray\.\w[\w.]*"
)
ASKING = wordset("os.popen subprocess.check_output subprocess.getoutput")
COMMANDS = re.compile(
    r"(stty size|tput cols|tput lines|nvidia-smi|hostname|uname|git (rev-parse|describe|log|status|diff))\b[^|;&><`$]*"
)
FILES = re.compile(
    r"logging\.FileHandler|logging\.handlers\.\w*FileHandler|builtins\.open|io\.open|gzip\.open|codecs\.open|h5py\.File"
)
READS = re.compile(
    r"torch\.load|numpy\.load\w*|pickle\.load|json\.load|pandas\.read_\w+|yaml\.\w*load\w*|joblib\.load|PIL\.Image\.open"
)
ASKS = re.compile(
    r"os\.path\.(exists|isfile|isdir|getsize|getmtime)|os\.(listdir|walk|scandir|stat)|glob\.i?glob|"
    r"pathlib\.\w*Path\.(exists|is_file|is_dir|glob|rglob|iterdir|stat)"
)
MADE = re.compile(  # files with something in them, which may be read again
    r"torch\.(save|jit\.save)|torchvision\.utils\.save_image|numpy\.save\w*|scipy\.io\.\w+(\.\w+)?|pickle\.dump|joblib\.dump|json\.dump|"
    r"yaml\.\w+|shutil\.(copy\w*|move)|imageio\.[\w.]+|cv2\.imwrite|PIL\.[\w.]+\.save|pandas\.[\w.]+|pathlib\.\w*Path\.write_\w+|nltk\.download|"
    r"numpy\.[\w.]+\.(tofile|dump)|soundfile\.write|nibabel\.save|safetensors\.[\w.]+|torchaudio\.save|builtins\.tofile"
)
IMAGES = re.compile(
    r"torchvision\.utils\.(save_image|make_grid)|.*\.(imshow|add_image|add_images|add_figure|add_embedding|add_video|add_audio|add_graph)|"
    r"matplotlib\..*|cv2\.\w+|imageio\..*|PIL\..*|wandb\.Image|torchvision\.transforms\..*|torch\.onnx\.export|torch\.jit\.\w+"
)
PLAIN = wordset(
    "append extend insert remove pop clear sort reverse add discard update setdefault items keys values get copy popleft"
)


@dataclass(frozen=True, eq=False)
class HostEffect:
    """What a call does: ``guard`` (in one process only), ``writer`` (makes an object that writes),
    ``bar``, ``file`` (opens one for writing), ``read`` or ``ask`` (a file, the file system),
    ``download``, ``forbidden``, ``unknown``. ``name`` is the function as the library calls it."""

    node: ast.Call
    kind: str
    name: str


def host_effects(script: Script) -> Iterator[HostEffect]:
    """The calls of the script that do something outside their process, or may do."""
    for node in script.each(ast.Call):
        if (found := effect_of(script, node)) is not None:
            yield found


def effect_of(script: Script, call: ast.Call) -> HostEffect | None:
    """What a call does outside its process; None where it is nothing, or where the project's own
    code does it.
    """
    callee = script.called(call)
    if not callee:
        return None
    worst: HostEffect | None = None
    for name in sorted({name_of(thing) for thing in callee}):
        kind = _kind(script, call, name) if name else ""
        if kind:
            found = HostEffect(call, kind, name)
            if worst is not None and worst.kind != kind:
                return HostEffect(call, "unknown", name)
            worst = found
    return worst


def _kind(script: Script, call: ast.Call, name: str) -> str:
    if FORBIDDEN.fullmatch(name):
        return "" if name in ASKING and _only_asks(script, call) else "forbidden"
    if WRITERS.fullmatch(name) and not (name == "wandb.init" and stands_alone(call)):
        return "writer"
    if BARS.fullmatch(name):
        return "bar"
    if FILES.fullmatch(name):
        return _opened(script, call, name)
    if name == "logging.basicConfig":
        return "file" if any(k.arg == "filename" for k in call.keywords) else ""
    if (
        name in ("os.makedirs", "pathlib.Path.mkdir")
        and const(_argument(script, call, "exist_ok")) is True
    ):
        return ""
    if GUARDED.fullmatch(name) or METHODS.fullmatch(name):
        return "guard"
    if DOWNLOADS.fullmatch(name):
        given = _argument(script, call, "download")
        if name.startswith(("torchvision", "torchaudio")) and (not given or const(given) is False):
            return ""
        return "download"
    if READS.fullmatch(name):
        return "read"
    if ASKS.fullmatch(name):
        return "ask"
    if name == "?":
        # What does something and gives nothing back.
        return "unknown" if stands_alone(call) else ""
    return "" if f"{name}.".startswith(HARMLESS) else "unknown"


def _only_asks(script: Script, call: ast.Call) -> bool:
    """A command that says something and changes nothing."""
    command = first_argument(call)
    if isinstance(command, ast.List) and all(is_text(e) for e in command.elts):
        text = " ".join(e.value for e in command.elts if is_text(e))
        return COMMANDS.fullmatch(text) is not None
    found = script.constant(command) if command is not None else None
    return isinstance(found, str) and COMMANDS.fullmatch(found) is not None


def name_of(thing: object) -> str:
    """What a library calls a function or method; "" for code of the project and for methods of
    plain data; "?" where it is not known.
    """
    match thing:
        case Ref():
            return thing.name
        case Method(this=this):
            return _method(this, thing.name)
        case Func() | Bound() | Cls() | Inst() | Partial():
            return ""
        case Ext():
            if thing.name.startswith(("torch.", "builtins.super")):
                return ""
            return f"{thing.name}.__call__"
        case Unknown():
            return _of_unknown(thing, "__call__")
    return ""


def _method(this: object, name: str) -> str:
    match this:
        case Ext():
            return f"{this.name}.{name}"
        case Unknown():
            return _of_unknown(this, name)
        case Num() | Const() | Tensor() | Seq() | Dict():
            # Files have been opened by a call that is seen.
            return f"numpy.ndarray.{name}" if name == "tofile" else ""
        case Ref():
            return f"{this.name}.{name}"
    return ""


def _of_unknown(this: Unknown, method: str) -> str:
    """A method of what a library returned is one of that library's."""
    if this.reason is Reason.RESULT:
        return f"{this.name}.{method}"
    if this.reason is Reason.METHOD:
        return f"{this.name.rpartition('.')[0]}.{method}"
    return "" if method in PLAIN else "?"


def _opened(script: Script, call: ast.Call, name: str) -> str:
    if name.startswith("logging."):
        return "file"
    given = (
        [*script.values(call.args[1])] if len(call.args) > 1 else [*_argument(script, call, "mode")]
    )
    if not given:
        return "read"
    modes = [t.value for t in given if isinstance(t, Const)]
    if len(modes) != len(given) or not all_of(modes, str):
        return "unknown"
    writes = {any_in("wax+", m) for m in modes}
    if name == "h5py.File" and True in writes:
        return "unknown"
    return "unknown" if len(writes) > 1 else "file" if True in writes else "read"


def _argument(script: Script, call: ast.Call, name: str) -> Values:
    for keyword in call.keywords:
        if keyword.arg == name:
            return script.values(keyword.value) or frozenset({Unknown("not read")})
        if keyword.arg is None:
            return frozenset({Unknown("keywords come through `**`")})
    return frozenset()
