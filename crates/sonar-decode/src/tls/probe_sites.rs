//! Finds the places for probes in a library or a program.

use std::io::{Read, Seek, SeekFrom};

use object::elf::{EM_AARCH64, EM_X86_64};

use super::instructions::{CodeStep, Machine, StepKind, steps};
use crate::elf::{ElfHeaders, Symbol};

/// The longest function to disassemble, in bytes. Those that are wanted have about a hundred.
const MAX_FUNCTION: u64 = 4_096;
/// How far behind a call its result is still where it was returned, in instructions.
const NEAR: usize = 4;

/// Why no places were found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SitesError {
    /// It is no ELF file of 64 bits for this kind of processor, or it is damaged.
    #[error("no readable ELF file of 64 bits: {0}")]
    Format(String),
    /// It has no `SSL_read`.
    #[error("it has no symbol SSL_read")]
    NoSymbols,
}

/// Where to read one function: offsets in the file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CallSites {
    /// The call of its inner function, which has the same first arguments: session, buffer, length.
    pub called: u64,
    /// An instruction behind that call, where its result is still in the register of results.
    pub returned: u64,
    /// Both are instructions that the kernel emulates.
    pub cheap: bool,
}

/// Places for probes in one file. A function has none if the file does not have it, or if it does not call an inner
/// function, as in OpenSSL before 1.1.1.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeSites {
    /// `SSL_read`.
    pub read: Option<CallSites>,
    /// `SSL_write`.
    pub write: Option<CallSites>,
    /// `SSL_read_ex`.
    pub read_ex: Option<CallSites>,
    /// `SSL_write_ex`.
    pub write_ex: Option<CallSites>,
    /// In `SSL_do_handshake`, the same as [`free`](Self::free).
    pub handshake: Option<u64>,
    /// In `SSL_free`: a cheap instruction, with the session still in the register of the first argument.
    pub free: Option<u64>,
    /// Functions that the file has, and for which no place was found.
    pub unsuitable: usize,
}

impl ProbeSites {
    /// The places in an ELF file: a library, or a program that the library is linked into.
    ///
    /// # Errors
    /// [`SitesError`]
    pub fn find(file: impl Read + Seek) -> Result<Self, SitesError> {
        let (headers, mut file) = ElfHeaders::read(file).map_err(SitesError::Format)?;
        let machine = match headers.machine {
            machine if machine == EM_X86_64.0 => Machine::X86,
            machine if machine == EM_AARCH64.0 => Machine::Arm,
            other => {
                return Err(SitesError::Format(format!("it is for another kind of processor ({other})")));
            }
        };
        let mut found = Self::default();
        let names: [&[u8]; 6] =
            [b"SSL_read", b"SSL_write", b"SSL_read_ex", b"SSL_write_ex", b"SSL_free", b"SSL_do_handshake"];
        let functions = functions(&headers, &mut file, &names);
        if functions[0].is_none() && functions[2].is_none() {
            return Err(SitesError::NoSymbols);
        }
        // Where a function is in the file, and its bytes.
        let mut code = |function: Symbol| -> Option<(u64, Vec<u8>)> {
            let size = (function.end - function.start).min(MAX_FUNCTION);
            headers.segments.iter().find_map(|segment| {
                let into = function.start.checked_sub(segment.address)?;
                if into.checked_add(size)? > segment.length {
                    return None;
                }
                let offset = segment.offset.checked_add(into)?;
                let mut bytes = vec![0; size as usize];
                file.seek(SeekFrom::Start(offset)).ok()?;
                file.read_exact(&mut bytes).ok()?;
                Some((offset, bytes))
            })
        };
        let places = [&mut found.read, &mut found.write, &mut found.read_ex, &mut found.write_ex];
        for (place, function) in places.into_iter().zip(functions) {
            let Some(function) = function else { continue };
            *place = code(function).and_then(|(offset, bytes)| call_sites(offset, &steps(machine, &bytes)));
            found.unsuitable += usize::from(place.is_none());
        }
        let mut entry_of = |function: Option<Symbol>| {
            function.and_then(&mut code).and_then(|(offset, bytes)| entry(offset, &steps(machine, &bytes)))
        };
        found.free = entry_of(functions[4]);
        found.handshake = entry_of(functions[5]);
        Ok(found)
    }
}

/// The functions with these names. The table of what is exported is short; that of a program may have a million symbols.
fn functions(headers: &ElfHeaders, file: &mut (impl Read + Seek), names: &[&[u8]; 6]) -> [Option<Symbol>; 6] {
    let mut found = [None; 6];
    for table in headers.symbols.iter().rev().flatten() {
        let places = table.places_of(file, names);
        if places.is_empty() {
            continue;
        }
        table.functions(file, |symbol| {
            for (_, number) in places.iter().filter(|(place, _)| *place == symbol.name) {
                found[*number].get_or_insert(symbol);
            }
            true
        });
    }
    found
}

/// The first call of a function, and where its result is read. Branches before it are those of wrong arguments.
fn call_sites(offset: u64, steps: &[CodeStep]) -> Option<CallSites> {
    let at = steps.iter().position(|step| matches!(step.kind, StepKind::Call | StepKind::Leaves))?;
    if steps[at].kind != StepKind::Call {
        return None;
    }
    let behind = steps.get(at + 1..)?;
    // As long as nothing has changed the result; the instruction that is probed may change it.
    let unchanged = behind.iter().take(NEAR).position(|step| step.changes_result);
    let near = &behind[..behind.len().min(unchanged.map_or(NEAR, |last| last + 1))];
    let straight =
        near.iter().position(|step| step.kind == StepKind::Leaves).map_or(near.len(), |end| end + 1);
    let cheap = near[..straight].iter().find(|step| step.cheap);
    let returned = cheap.or(near.first())?;
    Some(CallSites { called: offset + steps[at].at, returned: offset + returned.at, cheap: cheap.is_some() })
}

/// The first cheap instruction of a function, if its first argument is still there.
fn entry(offset: u64, steps: &[CodeStep]) -> Option<u64> {
    for step in steps {
        if step.cheap {
            return Some(offset + step.at);
        }
        if step.changes_argument || step.kind == StepKind::Leaves {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SSL_read` of OpenSSL 3.0 as Debian builds it, up to the second branch.
    const READ: &[u8] = &[
        0x48, 0x83, 0xec, 0x18, // sub $0x18,%rsp
        0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, // mov %fs:0x28,%rax
        0x48, 0x89, 0x44, 0x24, 0x08, // mov %rax,0x8(%rsp)
        0x31, 0xc0, // xor %eax,%eax
        0x85, 0xd2, // test %edx,%edx
        0x78, 0x2f, // js
        0x48, 0x89, 0xe1, // mov %rsp,%rcx
        0x48, 0x63, 0xd2, // movslq %edx,%rdx
        0xe8, 0x3d, 0xfe, 0xff, 0xff, // call
        0x85, 0xc0, // test %eax,%eax
        0x7e, 0x03, // jle
        0x8b, 0x04, 0x24, // mov (%rsp),%eax
        0xc3,
    ];
    /// `SSL_read_ex` of the same.
    const READ_EX: &[u8] = &[
        0x48, 0x83, 0xec, 0x08, // sub $0x8,%rsp
        0xe8, 0xc7, 0xfd, 0xff, 0xff, // call
        0x31, 0xd2, // xor %edx,%edx
        0x85, 0xc0, // test %eax,%eax
        0x0f, 0x48, 0xc2, // cmovs %edx,%eax
        0x48, 0x83, 0xc4, 0x08, // add $0x8,%rsp
        0xc3,
    ];

    #[test]
    fn probes_lie_on_the_call_and_on_the_branch_behind_it() {
        let found = call_sites(0x35470, &steps(Machine::X86, READ));
        assert_eq!(found, Some(CallSites { called: 0x3548e, returned: 0x35495, cheap: true }));
    }

    #[test]
    fn without_a_branch_the_place_behind_the_call_costs_more() {
        let found = call_sites(0x35500, &steps(Machine::X86, READ_EX));
        assert_eq!(found, Some(CallSites { called: 0x35504, returned: 0x35509, cheap: false }));
    }

    #[test]
    fn a_function_that_jumps_to_another_one_has_no_place() {
        // mov 0x8(%rdi),%rax; jmp *0x38(%rax), as in OpenSSL 1.0.2
        assert_eq!(call_sites(0, &steps(Machine::X86, &[0x48, 0x8b, 0x47, 0x08, 0xff, 0x60, 0x38])), None);
        assert_eq!(call_sites(0, &steps(Machine::X86, &[0xc3])), None);
        assert_eq!(call_sites(0, &[]), None);
    }

    #[test]
    fn a_result_that_has_changed_is_not_read() {
        // call; xor %eax,%eax; jle
        let code = [0xe8, 0, 0, 0, 0, 0x31, 0xc0, 0x7e, 0x03];
        assert_eq!(
            call_sites(0, &steps(Machine::X86, &code)),
            Some(CallSites { called: 0, returned: 5, cheap: false })
        );
    }

    #[test]
    fn an_entry_is_cheap_as_long_as_the_argument_is_there() {
        // test %rdi,%rdi; je
        assert_eq!(entry(16, &steps(Machine::X86, &[0x48, 0x85, 0xff, 0x74, 0x10])), Some(19));
        // push %rbx
        assert_eq!(entry(16, &steps(Machine::X86, &[0x53])), Some(16));
        // mov %rsi,%rdi; push %rbx
        assert_eq!(entry(16, &steps(Machine::X86, &[0x48, 0x89, 0xf7, 0x53])), None);
    }

    #[test]
    fn on_arm_calls_and_branches_are_cheap() {
        let words = [0xa9be_7bfd_u32, 0x9400_0010, 0x7100_001f, 0x5400_006d, 0xd65f_03c0];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found = call_sites(0x1000, &steps(Machine::Arm, &code));
        assert_eq!(found, Some(CallSites { called: 0x1004, returned: 0x100c, cheap: true }));
    }

    #[test]
    fn a_file_that_is_no_program_is_refused() {
        let find = |bytes: &[u8]| ProbeSites::find(std::io::Cursor::new(bytes.to_vec()));
        assert!(matches!(find(b"\x7fELF"), Err(SitesError::Format(_))));
        assert!(matches!(find(b""), Err(SitesError::Format(_))));
        let own = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(ProbeSites::find(own), Err(SitesError::NoSymbols));
    }
}
