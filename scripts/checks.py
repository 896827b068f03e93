# SPDX-License-Identifier: GPL-2.0
"""The rules of this project that no compiler checks.

Each check takes the path of a file below the root of the project and its text, and yields
(line number, complaint).
"""

import ast
import errno
import re
from pathlib import PurePosixPath

MAX_LINES = 600

# Layers from bottom to top. A layer may use itself and lower rows, not its neighbours in the row.
# So no two folders use each other, directly or through others.
LAYERS = (
    ("bindings",),
    ("kapi",),
    ("proto",),
    ("uapi", "params"),
    ("cong", "rdma_mem", "recv_pool", "stats"),
    ("trace",),
    ("socket",),
    ("msg",),
    ("conn",),
    ("cm",),
    ("ib_transport", "loop_transport", "tcp_transport"),
    ("af_rds",),
    ("namespaces",),
    ("rds_core",),
)
LEVEL = {name: i for i, row in enumerate(LAYERS) for name in row}
UNSAFE_LAYERS = ("bindings", "kapi")
# Layers that may import bindings. The last two use its safe functions.
BINDINGS_USERS = ("bindings", "kapi", "trace", "params")
# Layers that are also compiled for the build host, and what they may import.
HOST_LAYERS = {"proto": ("proto",), "uapi": ("proto", "uapi")}
SOURCES = (".rs", ".c", ".h", ".py", ".sh", ".mk", ".toml", ".yml", ".yaml", ".lua")
# Licences of files that other programs may link, whatever their own licence.
LICENCES = {"tools/rds-socket/": "GPL-2.0-only OR BSD-2-Clause"}
NAMED_SOURCES = ("Makefile", "Kbuild", "Kconfig", "run")

# Comments and literals of Rust, which are not searched as code.
RUST_NOISE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | b?r(\#*)".*?"\1 | b?"(?:\\.|[^"\\])*"
        | b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])'""",
    re.S | re.X,
)


def code_of(text):
    """Returns Rust source with blanked comments and literals, line for line."""
    return RUST_NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def layer_of(path):
    """Returns the layer of a Rust file of the module, or None."""
    if not path.endswith(".rs"):
        return None
    top = PurePosixPath(path).parts[0].removesuffix(".rs")
    return top if top in LEVEL else None


def is_of_module(path):
    """Returns `True` for Rust code of the module and of its KUnit suites."""
    return layer_of(path) is not None or path.startswith("tests/kunit/")


def numbered(pattern, text):
    for m in re.finditer(pattern, text):
        yield text.count("\n", 0, m.start()) + 1, m


def layers(path, text):
    """Imports point only to lower layers, and those of the host's layers to each other."""
    own = layer_of(path)
    if own is None:
        return
    code = code_of(text)
    uses = []
    for number, m in numbered(r"\bcrate\s*::\s*(?:(\w+)|\{([^;]*)\})", code):
        # In `crate::{a::{b, c}, d}` only a and d are layers.
        names = [m[1]] if m[1] else re.findall(r"(?:^|,)\s*(\w+)", flat(m[2]))
        uses += [(number, name) for name in names]
    depth = len(PurePosixPath(path).parts) - 1 - (path.endswith("/mod.rs"))
    for number, m in numbered(r"\b((?:super\s*::\s*)+)(\w+)", code):
        if m[1].count("super") > depth:
            uses.append((number, m[2]))
    for number, used in uses:
        if used not in LEVEL:
            continue
        if LEVEL[used] > LEVEL[own]:
            yield number, f"{own} uses {used}, which is above it"
        elif LEVEL[used] == LEVEL[own] and used != own:
            yield number, f"{own} uses {used}, which is in the same row"
        elif own == "proto" and used != "proto":
            yield number, f"proto uses {used}, but proto/ stands on core alone"
        elif used == "bindings" and own not in BINDINGS_USERS:
            yield number, f"{own} uses bindings, which kapi/ wraps"
        elif used not in HOST_LAYERS.get(own, LEVEL):
            yield number, f"{own} uses {used}, which the build host does not have"


def flat(group):
    """Returns a use group without the groups inside it."""
    while (shorter := re.sub(r"\{[^{}]*\}", "", group)) != group:
        group = shorter
    return group


def unsafe_code(path, text):
    """`unsafe` occurs only in bindings/ and kapi/, and each use has a comment with its reason."""
    if not path.endswith(".rs"):
        return
    own = layer_of(path)
    lines = text.split("\n")
    code = code_of(text)
    for number, m in numbered(r"\bunsafe\b\s*(\{|impl\b|fn\b|extern\b|trait\b)?", code):
        if re.search(r"unsafe_\w*$", code[: m.end()]):
            continue
        if own is not None and own not in UNSAFE_LAYERS:
            yield number, f"unsafe in {own}/: it belongs in kapi/"
        # A declaration states its requirements under "# Safety", which the compiler's lints check;
        # in a type, the word makes no promise.
        if m[1] in ("{", "impl") and not has_safety_comment(lines, number - 1):
            yield number, "unsafe without a // SAFETY: comment before it"


def has_safety_comment(lines, index):
    if "SAFETY:" in lines[index].split("unsafe")[0]:
        return True
    # The comment is above the statement, which may have begun some lines before.
    for i in range(index - 1, max(-1, index - 12), -1):
        line = lines[i].strip()
        if line.startswith("//"):
            while i >= 0 and lines[i].strip().startswith("//"):
                if re.match(r"//+!?\s*SAFETY:", lines[i].strip()):
                    return True
                i -= 1
            return False
        if not line or line.endswith((";", "}")):
            return False
    return False


def module_denies_unsafe(path, text):
    """The root of every layer without `unsafe` code denies it by an attribute."""
    own = layer_of(path)
    if own in (None, "rds_core", *UNSAFE_LAYERS) or path not in (f"{own}/mod.rs", f"{own}.rs"):
        return
    wanted = "forbid" if own in HOST_LAYERS else "deny"
    if not re.search(rf"#!\[{wanted}\((?:\w+, *)*unsafe_code\b", code_of(text)):
        yield 1, f"no #![{wanted}(unsafe_code)]"


def licence_of(path):
    """Returns the licence of a file of the project, as an SPDX expression."""
    return next((licence for folder, licence in LICENCES.items() if path.startswith(folder)), "GPL-2.0")


def spdx(path, text):
    """The first line, or the second line of a script, names the licence of the folder exactly."""
    name = PurePosixPath(path)
    if name.suffix not in SOURCES and name.name not in NAMED_SOURCES:
        return
    lines = text.split("\n")[:2]
    first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
    found = re.search(r"SPDX-License-Identifier: (.*?)(?: \*/)?$", first)
    if not found:
        yield 1, "no SPDX-License-Identifier line"
    elif found[1] != licence_of(path):
        yield 1, f"licence {found[1]}, but this file is under {licence_of(path)}"


def length(path, text):
    """Files are short enough to read. The imports of the module do not count: each item has a
    line."""
    if path.endswith((".rs", ".c", ".h", ".py", ".sh")):
        lines = text.count("\n")
        if is_of_module(path):
            lines -= sum(m[0].count("\n") for _, m in numbered(IMPORT, code_of(text)))
        if lines >= MAX_LINES:
            yield lines, f"{lines} lines; fewer than {MAX_LINES} are allowed"


def purpose(path, text):
    """A Rust file begins with a comment on its purpose."""
    if path.endswith(".rs") and not re.match(r"(//[^!\n]*\n|\s*\n)*//!", text):
        yield 1, "no //! comment that says what the file is for"


def work_queues(path, text):
    """Nothing uses the system's work queues, because no unload waits for their items."""
    if layer_of(path) is None and not path.startswith("bindings/"):
        return
    code = code_of(text) if path.endswith(".rs") else text
    for number, m in numbered(r"\bworkqueue::system\w*|\bsystem_\w*wq\b|\bschedule_(?:delayed_)?work\w*", code):
        yield number, f"{m[0]}: the module has a queue of its own"


def work_items(path, text):
    """A work item runs in a NOIO scope, because reclaim of memory may wait for it."""
    if layer_of(path) is None:
        return
    code = code_of(text)
    for m in re.finditer(r"\bimpl WorkItem\b[^{]*\{", code):
        run = re.search(r"\bfn run\([^)]*\) \{\s*(\w*)", code[m.end():])
        if not run or run[1] != "without_io":
            yield code.count("\n", 0, m.start()) + 1, "the body of run() does not begin with without_io()"


def softirq_cqs(path, text):
    """No completion queue is polled in a way for whose end its release does not wait."""
    if path.startswith("bindings/"):
        for number, _ in numbered(r"\bIB_POLL_SOFTIRQ\b", text):
            yield number, "ib_free_cq() may free this completion queue under ib_poll_handler()"


# First words of a fragment. A comment first names the thing, or the action of the thing.
FRAGMENT = re.compile(r"(What|Who|Whom|Whose|How|Whether|That|So|Of|By|Where|When|Which|Nor|But)\b")
DOC = re.compile(r"\s*//[/!] ?(.*)")
COMMENT = re.compile(r"(^|\s)//")
MAX_COLUMNS = 100
LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
BLOCK_COMMENT = re.compile(r"/\*+[ \n*]*(.*)")
WHOLE_COMMENT = re.compile(r"/\*.*?\*/", re.S)
HASH_COMMENTS = (".py", ".sh", ".mk", ".toml", ".yml", ".yaml", ".conf")
HASH_NAMES = ("Makefile", "Kbuild", "Kconfig", "run", "rules", "dkms.conf")


def doc_blocks(text):
    """Yields (line number, lines) of each documentation comment in Rust."""
    block = []
    for number, line in enumerate(text.split("\n"), 1):
        if doc := DOC.match(line):
            block.append(doc[1])
        elif block:
            yield number - len(block), block
            block = []
    if block:
        yield text.count("\n") + 2 - len(block), block


def rust_docs(text):
    for number, block in doc_blocks(text):
        yield number, block[0]


def docstrings(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if doc := ast.get_docstring(node):
                yield node.body[0].lineno, doc


def header(text):
    """Yields the comment at the top of a script, after the interpreter and the licence."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"#!|# SPDX-|#?$", line):
            continue
        if line.startswith("#"):
            yield number, line.lstrip("# ")
        return


def documentation(path, text):
    """Yields (line number, text) of each comment that says what something is or does."""
    name = PurePosixPath(path)
    if name.suffix == ".rs":
        yield from rust_docs(text)
    elif name.suffix in (".c", ".h"):
        yield from ((number, m[1]) for number, m in numbered(BLOCK_COMMENT, text))
    elif name.suffix in HASH_COMMENTS or name.name in HASH_NAMES or text.startswith("#!"):
        yield from header(text)
    if name.suffix == ".py":
        yield from docstrings(text)


def comments(path, text):
    """Documentation begins with a noun phrase or a verb."""
    for number, doc in documentation(path, text):
        if FRAGMENT.match(doc):
            yield number, f"a comment that begins with {doc.split()[0]} is a fragment"


def markdown_prose(text):
    """Yields (line number, line) of a document, except headings, tables and code."""
    fenced, code, blank = False, False, True
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip():
            # Code follows an empty line. Otherwise the line continues an item of a list.
            code = line.startswith("    ") and (code or blank) and not LIST_ITEM.match(line)
            if not code and not re.match(r"#|\s*\|", line):
                yield number, line
        blank = not line.strip()


# Characters of literals in a line that is a message.
MESSAGE = 30


def python_comments(text):
    """Yields (line number, line) of docstrings, and of comments that have a line of their own."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            yield number, line
    for number, doc in docstrings(text):
        yield from ((n, lines[n - 1]) for n in range(number, number + doc.count("\n") + 1))


def rust_without_messages(text):
    """Yields (line number, line) of Rust, except lines that are mostly a literal."""
    for number, (line, code) in enumerate(zip(text.split("\n"), code_of(text).split("\n"), strict=True), 1):
        if COMMENT.search(line) or sum(a != b for a, b in zip(line, code, strict=True)) < MESSAGE:
            yield number, line


def width(path, text):
    """Comments, Rust code and prose in documents fit the width.

    Lines that rustfmt leaves longer are messages, which stay whole so that grep finds them."""
    if path.endswith(".md"):
        lines = markdown_prose(text)
    elif path.endswith(".rs"):
        lines = rust_without_messages(text)
    elif path.endswith(".py"):
        lines = python_comments(text)
    else:
        return
    for number, line in lines:
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns; at most {MAX_COLUMNS} are allowed"


MAX_WORDS = 25
# Begin of a line that is an item of a list, explains a name, or is a row of columns.
NEW_PARAGRAPH = re.compile(rf"{LIST_ITEM.pattern}|^\s*(?:@?\w+: |\S.*?\S {{2}})")
# Names in a row, which count as one word.
NAMES_IN_A_ROW = re.compile(r"(?:`[^`]+`(?: \([^)]*\))?(?:, and |, or |, | and | or ))*`[^`]+`")
SENTENCE_END = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.!?])[*)\"]*\s+")


def paragraphs(lines):
    """Yields (line number, text) of each paragraph or item among numbered lines of prose."""
    begin, words, before = 0, [], 0
    for number, line in lines:
        new = not words or number != before + 1 or not line.strip() or NEW_PARAGRAPH.match(line)
        if new and words:
            yield begin, " ".join(words)
        if new:
            begin, words = number, []
        words += LIST_ITEM.sub("", line, 1).split()
        before = number
    if words:
        yield begin, " ".join(words)


def prose(path, text):
    """Yields (line number, line) of documents and of comments that document something."""
    if path.endswith(".md"):
        yield from markdown_prose(text)
    elif path.endswith(".rs"):
        for number, block in doc_blocks(text):
            yield from ((number + n - 1, x) for n, x in markdown_prose("\n".join(block)))
    elif path.endswith((".c", ".h")):
        for number, m in numbered(WHOLE_COMMENT, text):
            yield from ((number + n, re.sub(r"^\s*/?\*+/?\s?", "", x)) for n, x in enumerate(m[0].split("\n")))
    elif path.endswith(".py"):
        for number, doc in docstrings(text):
            yield from ((number + n, x) for n, x in enumerate(doc.split("\n")))


def sentences(path, text):
    """No sentence has more than 25 words."""
    for number, paragraph in paragraphs(prose(path, text)):
        for sentence in SENTENCE_END.split(paragraph):
            count = len(NAMES_IN_A_ROW.sub("names", sentence).split())
            if count > MAX_WORDS:
                yield number, f"{count} words in a sentence; at most {MAX_WORDS} are allowed: {sentence}"


# A returned error, in a sentence on it.
ERRNO = rf"\b(?:{'|'.join(sorted(errno.errorcode.values()))})\b"
RETURNED_ERRNO = re.compile(rf"\b(?:[Rr]eturns|[Ff]ails)\b[^.]*?{ERRNO}")


def error_sections(path, text):
    """The errors that a function returns are listed under "# Errors"."""
    if not is_of_module(path):
        return
    for number, block in doc_blocks(text):
        heading, sections = "", {"": ""}
        for line in block:
            if line.startswith("# "):
                heading = line
            sections[heading] = f"{sections.get(heading, '')} {line}"
        for heading, section in sections.items():
            if heading != "# Errors" and RETURNED_ERRNO.search(section):
                yield number, 'an error that is returned belongs under "# Errors"'


# An import, with its indentation, visibility and crate.
IMPORT = re.compile(r"^([ \t]*)((?:pub(?:\([^)\n]*\))? )?)use (\w+)\b[^;]*;\n", re.M)


def imports(path, text):
    """Imports of the module have the kernel's vertical style, which an empty comment keeps.

    See "Imports" in the kernel's Documentation/rust/coding-guidelines.rst."""
    if not is_of_module(path):
        return
    lines, before = text.split("\n"), None
    for number, m in numbered(IMPORT, code_of(text)):
        whole = text[m.start():m.end()]
        for end in re.finditer(r"\}", whole):
            if not re.search(r"//\s*$", whole[:end.start()]):
                yield number + whole.count("\n", 0, end.start()), "the last item of this list has no // behind it"
        if before and before.end() == m.start() and before.groups() == m.groups():
            yield number, f"a second import from {m[3]}, which can have one list"
        # A comment or an attribute is about the import behind it alone.
        before = None if re.match(r"\s*(//(?!!)|#\[)", lines[number - 2]) else m


# Words that have meant something to this project only, with the terms of the field. Names in the
# module do not contain them.
PRIVATE_NAMES = {
    "anew": "again, reset",
    "beside": "meta, extra",
    "crowded": "near_limit",
    "deaf": "stalled",
    "heard": "received, known_to_peer",
    "heed": "acknowledge, use",
    "home": "owner, device",
    "homes": "owners, devices",
    "lent": "mapped, registered",
    "meet": "established",
    "news": "changed, notification",
    "nobody": "none",
    "notice": "notification",
    "ours": "own, local",
    "patience": "timeout",
    "payer": "account, charge",
    "question": "request, lookup, probe",
    "questions": "requests, lookups, probes",
    "settle": "flush, synchronize, wait",
    "spoil": "poison",
    "tell": "report, notify, log",
    "telling": "reporting, piggyback",
    "tells": "reports, notifies, sends",
    "tend": "service",
    "tended": "serviced",
    "tending": "servicing",
    "ticket": "charge",
    "told": "reported, notified, sent",
    "turn": "timer, admission, lock",
    "turns": "timers",
    "unasked": "not_sent",
    "unheard": "local_only",
    "unmet": "never_up",
    "unserved": "without_responder",
    "wish": "request",
}
# Phrases with plainer or more exact words, for code, comments, help texts and documents.
PRIVATE_PHRASES = re.compile(
    r"\b(anew|at the most|but for|by turns|for want of|in (?:its|the) midst|of ours|so many|whoever)\b", re.I)
NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def private_words(path, text):
    """The module's names have terms of the field, and no text has words of this project alone."""
    if layer_of(path):
        for number, name in numbered(r"\b[A-Za-z_]\w*", code_of(text)):
            for part in NAME_PART.findall(name[0]):
                if term := PRIVATE_NAMES.get(part.lower()):
                    yield number, f"{name[0]}: instead of {part.lower()} use {term}"
    if path.endswith((".rs", ".md", ".7")) or path.startswith("bindings/"):
        for number, m in numbered(PRIVATE_PHRASES, text):
            yield number, f"{m[0]!r} has a plainer word"


# Functions that are tests.
RUST_TEST = re.compile(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?fn (\w+)")
PYTHON_TEST = re.compile(r"^[ \t]*(?:async )?def (test_\w+)", re.M)
# Parts of a name that do not say which thing is tested.
VAGUE_NAME = re.compile(r"(?:^|_)(anew|nobody|ours|so_many|somebody|told|what|who|whoever)(?:_|$)")


def test_names(path, text):
    """Names of tests name the thing that is tested, not a question about it."""
    if path.endswith(".rs"):
        found = numbered(RUST_TEST, code_of(text))
    elif path.endswith(".py"):
        found = numbered(PYTHON_TEST, text)
    else:
        return
    for number, m in found:
        if part := VAGUE_NAME.search(m[1]):
            yield number + m[0].count("\n"), f"{m[1]}: instead of {part[1]} name the thing, its state, or the result"


TYPE = re.compile(r"^ *(?:pub(?:\([\w: ]+\))? )?(?:struct|enum|trait|union) (\w+)", re.M)


def types_defined_twice(sources):
    """Complaints about type names that the module has twice. `sources` maps paths to texts.

    The types of a file absent.rs take the place of others in a module that was built without them.
    """
    places = {}
    for path, text in sources.items():
        if layer_of(path) and PurePosixPath(path).name != "absent.rs":
            for number, m in numbered(TYPE, code_of(text)):
                places.setdefault(m[1], []).append(f"{path}:{number}")
    return [f"{second}: {name} is defined in {first}, too [types_defined_twice]"
            for name, (first, *others) in places.items() for second in others]


CHECKS = (comments, width, sentences, error_sections, private_words, test_names, imports, layers, unsafe_code, module_denies_unsafe, spdx,
          length, purpose, work_queues, work_items, softirq_cqs)


def check_file(path, text):
    """Returns all complaints about one file, as readable lines."""
    return [f"{path}:{number}: {complaint} [{check.__name__}]"
            for check in CHECKS for number, complaint in check(path, text)]
