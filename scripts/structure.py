#!/usr/bin/env python3
"""Checks what no compiler does: each type name is unique in the workspace, no function takes more than four parameters
or a tuple as one of them, no file imports one that imports it, and every message passes through the macros that escape
it. What else is written to standard output is escaped where it is written, or a comment above says why that is not
needed: `// escaped: WHY`. No test sleeps without a comment on the line above that says which span it observes:
`# span: WHAT`. Prints every finding; the exit code is 1 if there is one.

Except for sleeps, unit tests do not count. A re-exported item counts as an import of the file that defines it."""

import ast
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_PARAMETERS = 4
VISIBILITY = r"(?:pub(?:\([a-z: ]+\))? )"
TYPE = re.compile(rf"^{VISIBILITY}?(?:unsafe )?(?:struct|enum|trait|type|union) ([A-Z]\w*)", re.M)
FUNCTION = re.compile(r"\bfn (\w+)\s*(?:<(?:[^()<>]|<[^<>]*>|\([^()]*\)|->)*>)?\(")
# What stands before the type of a parameter that is lent or optional.
LENT = re.compile(r"(?:&\s*(?:'\w+\s+)?|mut\s+|Option<\s*)*")
UNIT_TESTS = re.compile(r"^\s*#\[cfg\((?:all\()?test\b", re.M)
COMMENT = re.compile(r"(?<!:)//[^\n]*")
USE = re.compile(rf"^\s*({VISIBILITY})?use ([^;]+);", re.M)
# The binary's own macros of these names escape what they print; other crates print nothing.
UNESCAPED = re.compile(r"\bstd::e?println!|\bwrite(?:ln)?!\(\s*(?:std::)?io::stderr\(\)|\beprint!|\bdbg!")
PRINTED = re.compile(r"\be?print(?:ln)?!")
MACROS = pathlib.Path("crates/mongosonar/src/main.rs")
# By convention a writer is called `out`; others are bound to a standard stream, or a field that is.
STREAM = r"\b(?:std::)?(?:io::)?std(?:out|err)\(\)"
BOUND = [
    re.compile(rf"\blet (?:mut )?(\w+)\b[^;]*?{STREAM}"),
    re.compile(rf"\b(\w+): (?:BufWriter|LineWriter)[^;{{}}]*?{STREAM}"),
]
WRITE = re.compile(r"\bwrite(?:ln)?!\(")
WRITE_ALL = re.compile(rf"{STREAM}(?:\.lock\(\))?\.write(?:_all)?\(")
PLACEHOLDER = re.compile(r"\{(\w*)(?::[^{}]*)?\}")
ESCAPED = re.compile(r"\s*// escaped: \w")
SLEEP = re.compile(r"\b(?:thread|time)::sleep\(|\bpark_timeout\(|(?<![\w:.])(?<!fn )sleep\(")
SPAN = re.compile(r"\s*(?:#|//) span: \w")
PATH = re.compile(r"(?<![\w:])\w+(?:::\w+)+")


def source(text):
    """The text of a file without comments and without the unit tests at its end."""
    text = COMMENT.sub("", text)
    tests = UNIT_TESTS.search(text)
    return text[: tests.start()] if tests else text


def duplicates(files):
    places = collections.defaultdict(list)
    for path, text in files.items():
        for name in TYPE.findall(text):
            places[name].append(str(path))
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"type {name} is defined more than once: {', '.join(found)}"


def parameters(text, begin):
    """The parameters of a function whose parenthesis opens before `begin`, except `self`."""
    depth, start, found = 0, begin, []
    for at in range(begin, len(text)):
        char = text[at]
        if char in "([{<":
            depth += 1
        elif char in ")]}" or (char == ">" and text[at - 1] not in "-="):
            depth -= 1
        if depth < 0 or (depth == 0 and char == ","):
            found.append(text[start:at].strip())
            start = at + 1
        if depth < 0:
            break
    return [one for one in found if one and not re.fullmatch(r"(?:&(?:'\w+ )?)?(?:mut )?self", one)]


def long_lists(files):
    for path, text in files.items():
        for found in FUNCTION.finditer(text):
            count = len(parameters(text, found.end()))
            if count > MAX_PARAMETERS:
                yield f"{path}: fn {found[1]} takes {count} parameters"


def is_tuple(parameter):
    """Whether the type of a parameter is a tuple, also behind `&`, `mut` or `Option<`; `(impl A + B)` is none."""
    depth, colon = 0, None
    for at, char in enumerate(parameter):
        depth += (char in "([{<") - (char in ")]}>")
        if char == ":" and depth == 0 and "::" not in (parameter[at - 1 : at + 1], parameter[at : at + 2]):
            colon = at
            break
    kind = parameter[0 if colon is None else colon + 1 :].strip()
    kind = kind[LENT.match(kind).end() :]
    return kind.startswith("(") and (len(parameters(kind, 1)) > 1 or bool(re.match(r"\([^()]*,\s*\)", kind)))


def tuples(files):
    for path, text in files.items():
        for found in FUNCTION.finditer(text):
            for parameter in filter(is_tuple, parameters(text, found.end())):
                yield f"{path}: fn {found[1]} takes a tuple: {' '.join(parameter.split())}"


def leaves(tree):
    """The paths that a `use` names: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    tree = re.sub(r"\s+", " ", tree).strip()
    brace = tree.find("{")
    if brace < 0:
        yield tree.split(" as ")[0].strip()
        return
    head, depth, start = tree[:brace], 0, brace + 1
    for at in range(brace, len(tree)):
        depth += (tree[at] == "{") - (tree[at] == "}")
        if (depth == 1 and tree[at] == ",") or depth == 0:
            part = tree[start:at].strip()
            start = at + 1
            if part:
                yield from (head + leaf for leaf in leaves(part))
        if depth == 0:
            return


def module_of(path):
    """`a/b.rs` and `a/b/mod.rs` are both the module (a, b)."""
    parts = list(path.with_suffix("").parts)
    if parts[-1] in ("mod", "lib", "main"):
        parts.pop()
    return tuple(parts)


def resolve(path, module, modules):
    """The module that a path leads to from `module`, and the item in it; `None` if it leads out of the crate."""
    words = path.split("::")
    if words[0] == "crate":
        place = ()
    elif words[0] == "self":
        place = module
    elif words[0] == "super":
        place = module[:-1]
        while words[1:2] == ["super"]:
            place, words = place[:-1], words[1:]
    elif (*module, words[0]) in modules:
        place, words = module, ["self", *words]
    else:
        return None
    words = words[1:]
    while words and (*place, words[0]) in modules:
        place, words = (*place, words[0]), words[1:]
    return place, words[0] if words else None


def imports(files):
    """Which module uses which, of the files of a crate by their paths below `src`."""
    modules = {module_of(path): text for path, text in files.items()}
    exported, used = {}, collections.defaultdict(list)
    for module, text in modules.items():
        for public, tree in USE.findall(text):
            for leaf in leaves(tree):
                target = resolve(leaf, module, modules)
                if target and public:
                    exported[module, target[1] or leaf.split("::")[-1]] = target
                elif target:
                    used[module].append(target)
        code = USE.sub("", text)
        used[module] += filter(None, (resolve(path, module, modules) for path in PATH.findall(code)))
    edges = collections.defaultdict(set)
    for module, targets in used.items():
        for target in targets:
            passed = set()
            while target in exported and target not in passed:
                passed.add(target)
                target = exported[target]
            if target[0] != module:
                edges[module].add(target[0])
    return edges


def cycles(edges):
    """Strongly connected components of more than one module (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def import_cycles(crate, files):
    names = {module_of(path): str(crate / path) for path in files}
    for component in cycles(imports(files)):
        yield f"these files import each other: {', '.join(names.get(module, str(crate)) for module in component)}"


def raw_output(files):
    for path, text in files.items():
        is_binary = path.parts[:2] == MACROS.parts[:2]
        pattern = UNESCAPED if is_binary else PRINTED
        if path != MACROS and (found := pattern.search(text)):
            yield f"{path}: {found[0]} prints what nothing has escaped"


TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'', re.S)


def values(text, begin):
    """The arguments of a macro whose parenthesis opens before `begin`. Commas and parentheses in texts do not count."""
    depth, start, at, found = 0, begin, begin, []
    while at < len(text) and depth >= 0:
        literal = TEXT.match(text, at)
        if literal:
            at = literal.end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth < 0 or (depth == 0 and text[at] == ","):
            found.append(text[start:at].strip())
            start = at + 1
        at += 1
    return [one for one in found if one]


def is_shown_raw(arguments):
    """Whether one of these arguments of `write!`, behind the writer, is put in as it is: not by `escape`, and no literal."""
    if not arguments:
        return False
    form, values = arguments[0], arguments[1:]
    if not form.startswith('"'):
        return True
    named = dict(value.split(" = ", 1) for value in values if re.match(r"\w+ = ", value))
    taken = iter([value for value in values if not re.match(r"\w+ = ", value)])
    for name in PLACEHOLDER.findall(form.replace("{{", "").replace("}}", "")):
        value = named.get(name, name) if name and not name.isdigit() else next(taken, "")
        if not re.match(r'(?:sonar_view::kit::)?escape\(|"|$', value):
            return True
    return False


def raw_writes(files):
    """What the binary writes to its standard streams beside the documents of sonar-view. `files` have their comments."""
    for path, text in files.items():
        if path.parts[:2] != MACROS.parts[:2] or path == MACROS:
            continue
        tests = UNIT_TESTS.search(text)
        code = COMMENT.sub(lambda found: " " * len(found[0]), text[: tests.start()] if tests else text)
        lines = text.splitlines()
        writers = {"out"}.union(*(pattern.findall(code) for pattern in BOUND))
        found = [at.start() for at in WRITE_ALL.finditer(code)]
        for at in WRITE.finditer(code):
            target, *arguments = values(code, at.end())
            is_stream = re.search(STREAM, target) or re.findall(r"\w+", target)[-1] in writers
            if is_stream and is_shown_raw(arguments):
                found.append(at.start())
        for number in sorted(code.count("\n", 0, at) for at in found):
            if not number or not ESCAPED.match(lines[number - 1]):
                yield f"{path}:{number + 1}: nothing has escaped what is written, or a comment above says why: escaped: …"


def unexplained(path, lines, numbers):
    """The sleeps on these lines, counted from 1, without a comment above that says which span they observe."""
    for number in numbers:
        if number < 2 or not SPAN.match(lines[number - 2]):
            yield f"{path}:{number}: a test waits for a condition, or a comment above says what it observes: span: …"


def python_sleeps(path, text):
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    sleeps = [call.lineno for call in calls if ast.unparse(call.func).rpartition(".")[2] == "sleep"]
    return unexplained(path, text.splitlines(), sleeps)


def rust_sleeps(path, text, is_test):
    """Of a file of tests, or of the unit tests at the end of one."""
    lines = text.splitlines()
    tests = UNIT_TESTS.search(text)
    first = 0 if is_test else text.count("\n", 0, tests.start()) if tests else len(lines)
    numbers = [at + 1 for at, line in enumerate(lines) if at >= first and SLEEP.search(COMMENT.sub("", line))]
    return unexplained(path, lines, numbers)


def sleeps():
    for path in sorted((ROOT / "lab/tests").glob("*.py")):
        yield from python_sleeps(path.relative_to(ROOT), path.read_text())
    for path in sorted((ROOT / "crates").rglob("*.rs")):
        own = path.relative_to(ROOT)
        yield from rust_sleeps(own, path.read_text(), "tests" in own.parts or path.name == "tests.rs")


def check_itself():
    """Finds one seeded fault of each kind, and nothing in what only looks like one."""
    seeded = {
        "lib.rs": "mod a;\nmod b;\nmod c;\npub use b::Same;",
        "a.rs": "use crate::Same;\npub struct Two;\nfn long<T>(a: (u8, u8), b: &[u8], c: T, d: u8, e: fn(u8) -> u8) {}",
        "b.rs": "pub struct Same;\nfn of() { super::a::helper() }\n// use crate::c;",
        "c.rs": "use crate::b::Same;\nstruct Two;\nfn short(&self, a: HashMap<u8, u8>, b: u8, c: u8, d: u8) {}\n"
        "#[cfg(test)]\nmod tests { struct Same; }",
    }
    files = {pathlib.Path(name): source(text) for name, text in seeded.items()}
    assert list(import_cycles(pathlib.Path("x"), files)) == ["these files import each other: x/a.rs, x/b.rs"]
    assert list(duplicates(files)) == ["type Two is defined more than once: a.rs, c.rs"]
    assert list(long_lists(files)) == ["a.rs: fn long takes 5 parameters"]
    assert [line.split(" takes")[0] for line in tuples(files)] == ["a.rs: fn long"]
    taken = "(a, b): (u8, &[u8])", "a: &(u8, u8)", "a: Option<&'a mut (u8, (u8, u8))>", "mut a: (u8,)"
    assert all(map(is_tuple, taken))
    data = "a: &[(u8, u8)]", "a: fn(u8, u8) -> u8", "a: &mut (impl Read + Seek)", "S { a, b }: S<(u8, u8)>", "a: ()"
    assert not any(map(is_tuple, data))
    own = MACROS.parent
    printing = {
        own / "a.rs": 'writeln!(std::io::stderr(), "x")',
        own / "b.rs": 'eprintln!("x");\nio::stderr().is_terminal()',
        MACROS: "writeln!(std::io::stderr())",
        pathlib.Path("crates/sonar-sys/src/a.rs"): 'println!("x")',
    }
    raw = [line.split(":")[0] for line in raw_output(printing)]
    assert raw == ["crates/mongosonar/src/a.rs", "crates/sonar-sys/src/a.rs"]
    streams = (
        'let mut out = io::stdout().lock();\nwriteln!(out, "{line}")?;\nwriteln!(out, "{}", escape(line))?;\n'
        'writeln!(out)?;\nwrite!(text, "{line}");\nwriteln!(io::stderr(), "{}", of(line))?;\n// writeln!(out, "{x}")\n'
        '// escaped: a number\nwriteln!(self.out, "{count:>3} {{}}")?;'
    )
    fields = (
        'let view = View { to: BufWriter::new(io::stdout()) };\nwriteln!(view.to, "{0}", line)?;\n'
        'io::stdout().write_all(&page)?;\n#[cfg(test)]\nmod tests { fn of() { writeln!(out, "{line}") } }'
    )
    other = pathlib.Path("crates/sonar-view/src/a.rs")
    written = {own / "a.rs": streams, own / "b.rs": fields, other: 'writeln!(out, "{line}")'}
    raw = [line.split(": ")[0].rpartition("/")[2] for line in raw_writes(written)]
    assert raw == ["a.rs:2", "a.rs:6", "b.rs:2", "b.rs:3"], raw
    python = (
        "# span: of the test\ntime.sleep(1)\n\ntime.sleep(2)\nprogram = 'time.sleep(3)'\nasyncio.sleep(4)\n# span: none"
    )
    assert [line.split(":")[1] for line in python_sleeps("a.py", python)] == ["4", "6"]
    assert list(python_sleeps("a.py", "time.sleep(1)\n# span: below it"))
    rust = (
        "std::thread::sleep(PAUSE);\n#[cfg(test)]\nmod tests {\n// span: of it\nthread::sleep(x);\nthread::sleep(y);}"
    )
    assert [line.split(":")[1] for line in rust_sleeps("a.rs", rust, False)] == ["6"]
    assert [line.split(":")[1] for line in rust_sleeps("a.rs", rust, True)] == ["1", "6"]


def main():
    check_itself()
    everything, commented, findings = {}, {}, []
    for crate in sorted((ROOT / "crates").iterdir()):
        src = crate / "src"
        found = sorted(path for path in src.rglob("*.rs") if path.name != "tests.rs")
        files = {path.relative_to(src): source(path.read_text()) for path in found}
        findings += import_cycles(src.relative_to(ROOT), files)
        everything |= {src.relative_to(ROOT) / path: text for path, text in files.items()}
        commented |= {path.relative_to(ROOT): path.read_text() for path in found}
    for check in (duplicates, long_lists, tuples, raw_output):
        findings += check(everything)
    findings += raw_writes(commented)
    findings += sleeps()
    print("\n".join(findings), end="\n" if findings else "")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
