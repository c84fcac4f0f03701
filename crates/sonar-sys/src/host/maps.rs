//! The mappings of a process, line by line: there may be a million of them, each with a path that the process has chosen.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// The most mappings to look at: more than a server is allowed to have (`vm.max_map_count`).
const MAX_MAPPINGS: usize = 1 << 20;
/// The longest line, in bytes: of a path of 4,096 bytes each may take four.
const MAX_LINE: u64 = 16 << 10;

/// The lines of `/proc/PID/maps` (proc_pid_maps(5)). What is no UTF-8 of a path is replaced.
///
/// # Errors
/// The process has ended, or belongs to another user; or a line is too long, which is the last one then.
pub fn lines(process: u32) -> io::Result<impl Iterator<Item = io::Result<String>>> {
    Ok(of(BufReader::new(File::open(format!("/proc/{process}/maps"))?)))
}

fn of(mut from: impl BufRead) -> impl Iterator<Item = io::Result<String>> {
    let mut has_failed = false;
    (0..MAX_MAPPINGS).map_while(move |_| {
        let line = if has_failed { None } else { next(&mut from).transpose() };
        has_failed = matches!(line, Some(Err(_)));
        line
    })
}

fn next(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
    if line.len() as u64 == MAX_LINE {
        // Its rest would look like another line.
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a path is too long"));
    }
    let text = line.strip_suffix(b"\n").unwrap_or(&line);
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_one_by_one_and_one_that_is_too_long_is_the_last() {
        let mapping = "1000-2000 r-xp 00000000 fe:01 131 /usr/bin/mongod";
        let long = format!("{mapping}{}", "x".repeat(100_000));
        let text =
            [mapping.as_bytes(), b"\n", b"2000-3000 r--p 0 fe:01 1 /\xe9\n", long.as_bytes(), b"\n3000"]
                .concat();
        let lines: Vec<_> = of(text.as_slice()).map(|line| line.map_err(|error| error.kind())).collect();
        let expected = [
            Ok(mapping.to_owned()),
            Ok("2000-3000 r--p 0 fe:01 1 /\u{fffd}".to_owned()),
            Err(io::ErrorKind::InvalidData),
        ];
        assert_eq!(lines, expected);
        assert_eq!(of(mapping.as_bytes()).map(Result::unwrap).collect::<Vec<_>>(), [mapping]);
    }

    #[test]
    fn of_many_mappings_each_is_looked_at_and_nothing_goes_on_for_ever() {
        let many = io::repeat(b'\n');
        assert_eq!(of(BufReader::new(many)).count(), MAX_MAPPINGS);
        let own = lines(std::process::id()).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        assert!(own.iter().any(|line| line.ends_with("[stack]")), "{own:?}");
    }
}
