//! The files that the helper opens: those that a process executes, and those with their symbols.
//!
//! Whoever asks decodes what another program wrote, and may have been taken over by it. So a question names a mapping by
//! its addresses, and the kernel says which file that is. A file of symbols is named by its build id, or lies beside the
//! program. Only programs and libraries are handed out: no other files, and no core dumps.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use sonar_decode::stacks::{MAX_BUILD_ID, Mapping, executable};
use sonar_sys::host::process_files::ProcessFiles;
use sonar_sys::host::{maps, regular};

/// How every ELF file begins.
const MAGIC: [u8; 4] = *b"\x7fELF";
/// Where the type of an ELF file is, and the types of programs and of libraries (elf(5): ET_EXEC, ET_DYN).
const TYPE_AT: usize = 16;
const TYPES: [u16; 2] = [2, 3];
/// Where a host keeps symbols for all processes.
const HOST_SYMBOLS: &str = "/usr/lib/debug";

/// Opens the file of an executable mapping, even if it was deleted. `None` if the process has no executable mapping with
/// exactly these addresses, or its file is no ELF file or cannot be opened.
pub fn open_mapped(process: u32, range: &Range<u64>) -> Option<File> {
    let mapping = executable_file(process, range)?;
    let itself = format!("/proc/{process}/map_files/{:x}-{:x}", range.start, range.end);
    open_elf(Path::new(&itself)).or_else(|| inside(process)(plain_path(&mapping.path)?))
}

/// Opens the file with the symbols of an executable mapping, by its build id or by the name in the program. `None` if
/// there is none, or if [`open_mapped`] would refuse the mapping.
pub fn open_symbols(process: u32, range: &Range<u64>, build_id: &[u8], name: &[u8]) -> Option<File> {
    let mapping = executable_file(process, range)?;
    let program = mapping.path.strip_suffix(" (deleted)").unwrap_or(&mapping.path);
    let paths = symbol_paths(program, build_id, name);
    let on_host = |path: &Path| path.starts_with(HOST_SYMBOLS).then(|| open_elf(path)).flatten();
    let inside = inside(process);
    paths.iter().find_map(|path| inside(path).or_else(|| on_host(path)))
}

/// Opens files below the root folder of a process, with the rights of its user: a symbolic link there leads nowhere else.
fn inside(process: u32) -> impl Fn(&Path) -> Option<File> {
    let files = ProcessFiles::of_number(process).ok();
    move |path| elf(files.as_ref()?.open(path).ok()?)
}

/// The executable mapping of a file with exactly these addresses.
fn executable_file(process: u32, range: &Range<u64>) -> Option<Mapping> {
    let lines = maps::lines(process).ok()?.map_while(Result::ok);
    let mut mappings = lines.flat_map(|line| executable(&line));
    mappings.find(|mapping| mapping.range == *range && mapping.path.starts_with('/'))
}

fn open_elf(path: &Path) -> Option<File> {
    elf(regular::open(path).ok()?)
}

/// The file, if it is a program or a library.
fn elf(file: File) -> Option<File> {
    let mut header = [0; TYPE_AT + 2];
    file.read_exact_at(&mut header, 0).ok()?;
    let kind = u16::from_ne_bytes([header[TYPE_AT], header[TYPE_AT + 1]]);
    (header.starts_with(&MAGIC) && TYPES.contains(&kind)).then_some(file)
}

/// An absolute path that leads nowhere but down.
fn plain_path(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    let is_plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    is_plain.then_some(path)
}

/// Where the symbols of a program may be (gdb(1), "Separate Debug Files").
fn symbol_paths(program: &str, build_id: &[u8], name: &[u8]) -> Vec<PathBuf> {
    let debug = Path::new(HOST_SYMBOLS);
    let mut paths = Vec::new();
    if let [first, rest @ ..] = build_id
        && (1..MAX_BUILD_ID).contains(&rest.len())
    {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        paths.push(debug.join(format!(".build-id/{first:02x}/{rest}.debug")));
    }
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| !name.is_empty() && !name.contains('/') && *name != "..");
    if let (Some(folder), Some(name)) = (plain_path(program).and_then(Path::parent), name) {
        paths.push(folder.join(name));
        paths.push(folder.join(".debug").join(name));
        paths.push(debug.join(folder.strip_prefix("/").unwrap_or(folder)).join(name));
    }
    paths
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn symbols_are_looked_for_where_debuggers_do() {
        let paths = symbol_paths("/usr/bin/mongod", &[0xab, 0xcd, 0x01], b"mongod.debug");
        let expected = [
            "/usr/lib/debug/.build-id/ab/cd01.debug",
            "/usr/bin/mongod.debug",
            "/usr/bin/.debug/mongod.debug",
            "/usr/lib/debug/usr/bin/mongod.debug",
        ];
        assert_eq!(paths, expected.map(PathBuf::from));
        // Names that lead elsewhere.
        assert!(symbol_paths("/usr/bin/../x", &[], b"mongod.debug").is_empty());
        assert!(symbol_paths("/usr/bin/mongod", &[0xab], b"../../etc/shadow").is_empty());
        assert!(symbol_paths("mongod", &[], b"..").is_empty());
    }

    /// The beginning of an ELF file of this type.
    fn elf(kind: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(TYPE_AT, 0);
        bytes.extend(kind.to_ne_bytes());
        bytes
    }

    #[test]
    fn symbols_are_not_looked_for_outside_of_the_root_folder_of_the_process() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = "import os, sys; os.chroot(sys.argv[1]); print(flush=True); sys.stdin.read()";
        let mut command = Command::new("python3");
        command.args(["-c", program]).arg(root.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.stderr(Stdio::null()).spawn() else {
            return println!("skipped: python3 is not installed");
        };
        if child.stdout.as_mut().unwrap().read_exact(&mut [0]).is_err() {
            return println!("skipped: only root can change the root folder");
        }
        let lines = maps::lines(child.id()).unwrap().map_while(Result::ok);
        let is_file = |mapping: &Mapping| mapping.path.starts_with('/');
        let mapping = lines.flat_map(|line| executable(&line)).find(is_file).unwrap();
        let beside = Path::new(&mapping.path).parent().unwrap();
        let beside = root.path().join(beside.strip_prefix("/").unwrap());
        fs::create_dir_all(&beside).unwrap();
        for file in [outside.path().join("library"), beside.join("own.debug")] {
            fs::write(file, elf(3)).unwrap();
        }
        symlink("own.debug", beside.join("link.debug")).unwrap();
        symlink(outside.path().join("library"), beside.join("out.debug")).unwrap();
        let opens = |name: &str| open_symbols(child.id(), &mapping.range, &[], name.as_bytes()).is_some();
        assert_eq!(["own.debug", "link.debug", "out.debug"].map(opens), [true, true, false]);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn only_programs_and_libraries_are_handed_out() {
        let folder = std::env::temp_dir().join(format!("mongosonar-elf-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, bytes, is_elf) in [
            ("shadow", &b"root:$6$salt$hash:19000:0:99999:7:::\n"[..], false),
            ("short", b"\x7fELF\x02\x01\x01", false),
            ("object", &elf(1), false),
            ("program", &elf(2), true),
            ("library", &elf(3), true),
            ("core", &elf(4), false),
        ] {
            let path = folder.join(name);
            fs::write(&path, bytes).unwrap();
            assert_eq!(open_elf(&path).is_some(), is_elf, "{name}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
