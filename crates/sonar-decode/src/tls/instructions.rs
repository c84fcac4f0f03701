//! The instructions of a function, as far as probes depend on them.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register,
};

/// The processor of a program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86,
    Arm,
}

/// An instruction of a function, in the order in which they stand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct CodeStep {
    /// Bytes from the beginning of the function.
    pub at: u64,
    pub kind: StepKind,
    /// The kernel emulates it, rather than stepping over it with a trap.
    pub cheap: bool,
    /// It changes the register of the first argument.
    pub changes_argument: bool,
    /// It changes the register of the result.
    pub changes_result: bool,
}

/// What an instruction does with the order of execution.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// Calls a function at a fixed place.
    Call,
    /// Branches, or goes on.
    Branch,
    /// Goes on elsewhere: jumps, returns, or calls a function that is known only when it runs.
    Leaves,
    /// Goes on with the next one.
    Other,
}

/// The instructions of a function.
pub(super) fn steps(machine: Machine, code: &[u8]) -> Vec<CodeStep> {
    match machine {
        Machine::X86 => x86(code),
        Machine::Arm => arm(code),
    }
}

fn x86(code: &[u8]) -> Vec<CodeStep> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut steps = Vec::new();
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        let kind = match instruction.flow_control() {
            FlowControl::Call => StepKind::Call,
            FlowControl::ConditionalBranch => StepKind::Branch,
            FlowControl::Next => StepKind::Other,
            _ => StepKind::Leaves,
        };
        let is_called = kind == StepKind::Call;
        let used = info.info(&instruction).used_registers();
        let changes = |register: Register| {
            used.iter().any(|one| {
                one.register().full_register() == register
                    && matches!(
                        one.access(),
                        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                    )
            })
        };
        let start = instruction.ip() as usize;
        steps.push(CodeStep {
            at: instruction.ip(),
            kind,
            cheap: code
                .get(start..start + instruction.len())
                .is_some_and(|bytes| is_emulated(&instruction, bytes)),
            // A function may change either.
            changes_argument: is_called || changes(Register::RDI),
            changes_result: is_called || changes(Register::RAX),
        });
    }
    steps
}

/// Whether the kernel emulates an instruction for a probe (arch/x86/kernel/uprobes.c), in all versions since 5.15:
/// relative calls, jumps and branches, pushes of a register, and the one-byte `nop`.
fn is_emulated(instruction: &Instruction, bytes: &[u8]) -> bool {
    match bytes {
        [0x50..=0x57] | [0x41, 0x50..=0x57] | [0xe8 | 0xe9, _, _, _, _] | [0xeb, _] => true,
        [0x90] => instruction.code() == Code::Nopd,
        [0x70..=0x7f, _] | [0x0f, 0x80..=0x8f, ..] => true,
        _ => false,
    }
}

/// On arm64, the kernel simulates branches, and steps over everything else.
fn arm(code: &[u8]) -> Vec<CodeStep> {
    let words = code.chunks_exact(4).filter_map(|word| word.first_chunk().copied().map(u32::from_le_bytes));
    let step = |(number, word): (usize, u32)| {
        let is_branch = word & 0xff00_0010 == 0x5400_0000 || word & 0x7c00_0000 == 0x3400_0000;
        let kind = match word {
            _ if word >> 26 == 0b10_0101 => StepKind::Call,
            _ if is_branch => StepKind::Branch,
            // b, br, blr, ret
            _ if word >> 26 == 0b00_0101 || word & 0xfe00_0000 == 0xd600_0000 => StepKind::Leaves,
            _ => StepKind::Other,
        };
        // Comparing a register with zero is `subs wzr, w0, #0`; whatever else comes may change it.
        let is_comparison = word & 0x7fc0_001f == 0x7100_001f || word & 0x7fe0_001f == 0x6b00_001f;
        let changes = !is_branch && !is_comparison;
        CodeStep {
            at: number as u64 * 4,
            kind,
            cheap: matches!(kind, StepKind::Call | StepKind::Branch),
            changes_argument: changes,
            changes_result: changes,
        }
    };
    words.enumerate().map(step).collect()
}
