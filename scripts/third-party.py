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
    contained = linked(target)
    texts, without = {}, []
    for package in contained:
        found = terms(package)
        for text in found:
            texts.setdefault(text, []).append(name(package))
        if not found:
            without.append(package)
    print("The program mongosonar contains these libraries, under these licences. Their sources are on crates.io.\n")
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


def linked(target):
    """The packages of others that are linked into the binary, by name: no build scripts, no macros."""
    tree = cargo(
        "tree", "--package", "mongosonar", "--edges", "normal,no-proc-macro", "--prefix", "none", "--target", target
    )
    # name vVERSION, and for ours the path
    ids = {tuple(line.split()[:2]) for line in tree.splitlines() if "(/" not in line}
    known = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", target))["packages"]
    return sorted(
        (package for package in known if (package["name"], f"v{package['version']}") in ids),
        key=lambda package: (package["name"], package["version"]),
    )


def cargo(command, *words):
    words = ["cargo", command, "--locked", *words]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout


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
