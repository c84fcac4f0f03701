#!/usr/bin/env python3
"""Prints what the binary contains of others: each library with its licence, then the texts of the licences.

third-party.py TARGET     for example x86_64-unknown-linux-musl
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Files with terms or notices, also in the C sources that some crates bring along.
TERMS = re.compile(r"(un)?licen[cs]es?|copying|copyright|notice", re.IGNORECASE)
# Not part of the library.
ASIDE = {"tests", "test", "benches", "fuzz", "examples", "docs", "doc", "target"}


def main(target):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    known = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    packages = {package["id"]: package for package in known["packages"]}
    contained = sorted(linked(known, packages), key=lambda package: (package["name"], package["version"]))
    texts, without = {}, []
    for package in contained:
        found = terms(package)
        for text in found:
            texts.setdefault(text, []).append(name(package))
        if not found:
            without.append(package)
    print("The program mongosonar contains these libraries, under these licences.\n")
    for package in contained:
        print(f"  {name(package)}: {package['license'] or 'see its text below'}")
    print("  Rust's standard library: MIT OR Apache-2.0\n  musl: MIT")
    for package in without:
        authors = ", ".join(package["authors"]) or f"the authors of {package['repository']}"
        print(f"\n{name(package)} comes without the text of its licence ({package['license']}). Copyright: {authors}")
    texts.setdefault((ROOT / "LICENSE").read_text().strip(), []).append("mongosonar, Rust's standard library")
    texts.setdefault((ROOT / "packaging/musl-copyright").read_text().strip(), []).append("musl")
    for text, names in texts.items():
        print(f"\n{'=' * 80}\n{', '.join(names)}\n{'-' * 80}\n\n{text}")


def name(package):
    return f"{package['name']} {package['version']}"


def linked(known, packages):
    """The packages of others that are linked into the binary: no build scripts, no macros."""
    nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
    start = next(package["id"] for package in packages.values() if package["name"] == "mongosonar")
    seen, open_ids = {start}, [start]
    while open_ids:
        for dependency in nodes[open_ids.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            is_macro = any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])
            if is_linked and not is_macro and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                open_ids.append(dependency["pkg"])
    return [packages[one] for one in seen if packages[one]["source"]]


def terms(package):
    """The texts of the licences and notices of a package."""
    folder = pathlib.Path(package["manifest_path"]).parent
    named = [folder / package["license_file"]] if package["license_file"] else []
    found = [path for path in sorted(folder.rglob("*")) if TERMS.match(path.name) and not ASIDE & {*path.parts}]
    files = [path for path in dict.fromkeys(named + found) if path.is_file() and path.suffix not in (".rs", ".c", ".h")]
    # One text a licence, whatever the ends of its lines.
    return list(dict.fromkeys("\n".join(path.read_text(errors="replace").split("\r\n")).strip() for path in files))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
