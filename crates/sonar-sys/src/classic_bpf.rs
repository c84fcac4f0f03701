//! A small assembler for classic BPF, the language of socket filters.
//!
//! Conditional jumps of classic BPF reach only 255 instructions forward. A program here names its targets with
//! labels; a jump that is too long goes through an unconditional one, whose offset has 32 bits. All jumps go forward,
//! as the kernel requires.
//!
//! The machine: an accumulator A, an index X, sixteen words of memory M, all of 32 bits
//! (<https://www.kernel.org/doc/html/latest/networking/filter.html>).

/// One instruction, as the kernel takes it.
pub(crate) type Instruction = libc::sock_filter;

/// The longest program that the kernel takes (`BPF_MAXINSNS`).
pub(crate) const MAX_INSTRUCTIONS: usize = 4096;

/// A place in the program, to jump to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct JumpLabel(usize);

/// The condition of a jump, on A.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// A = k.
    Equal,
    /// A > k, unsigned.
    Greater,
    /// A ≥ k, unsigned.
    GreaterOrEqual,
    /// A and k have a common bit.
    AnyBit,
}

/// Width of a load from the packet, which is in network byte order.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    Byte,
    Half,
    Word,
}

/// An operation on A, with a constant or with X.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arithmetic {
    Add,
    Multiply,
    And,
    Xor,
    ShiftLeft,
    ShiftRight,
    Remainder,
}

/// The second operand of an arithmetic instruction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operand {
    Constant(u32),
    X,
}

#[derive(Copy, Clone)]
enum Item {
    Plain(Instruction),
    Jump(JumpLabel),
    /// A conditional jump; `None` is the next item.
    Branch {
        condition: Condition,
        k: u32,
        yes: Option<JumpLabel>,
        no: Option<JumpLabel>,
    },
}

/// A program under construction.
#[derive(Default)]
pub(crate) struct BpfAssembler {
    items: Vec<Item>,
    /// The item after each label.
    labels: Vec<Option<usize>>,
}

/// Why a program could not be assembled.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AssembleError {
    /// A label was never placed, or placed before a jump to it.
    Label(JumpLabel),
    /// The program has more than [`MAX_INSTRUCTIONS`] instructions.
    TooLong(usize),
}

impl BpfAssembler {
    /// A new label, to be placed later.
    pub(crate) fn label(&mut self) -> JumpLabel {
        self.labels.push(None);
        JumpLabel(self.labels.len() - 1)
    }

    /// Places the label before the next item.
    pub(crate) fn place(&mut self, label: JumpLabel) {
        self.labels[label.0] = Some(self.items.len());
    }

    fn plain(&mut self, code: u32, k: u32) {
        self.items.push(Item::Plain(Instruction { code: code as u16, jt: 0, jf: 0, k }));
    }

    /// A = bytes at the fixed offset `k`, or the value of the kernel's ancillary offset `k`.
    pub(crate) fn load(&mut self, width: Width, k: u32) {
        self.plain(libc::BPF_LD | width.code() | libc::BPF_ABS, k);
    }

    /// A = bytes at X + `k`.
    pub(crate) fn load_at_x(&mut self, width: Width, k: u32) {
        self.plain(libc::BPF_LD | width.code() | libc::BPF_IND, k);
    }

    /// A = `k`.
    pub(crate) fn load_constant(&mut self, k: u32) {
        self.plain(libc::BPF_LD | libc::BPF_IMM, k);
    }

    /// A = M\[`slot`\].
    pub(crate) fn load_memory(&mut self, slot: u32) {
        self.plain(libc::BPF_LD | libc::BPF_MEM, slot);
    }

    /// X = `k`.
    pub(crate) fn load_x_constant(&mut self, k: u32) {
        self.plain(libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM, k);
    }

    /// X = M\[`slot`\].
    pub(crate) fn load_x_memory(&mut self, slot: u32) {
        self.plain(libc::BPF_LDX | libc::BPF_W | libc::BPF_MEM, slot);
    }

    /// X = four times the low nibble of the byte at `k`: the length of an IPv4 header.
    pub(crate) fn load_x_ipv4_length(&mut self, k: u32) {
        self.plain(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, k);
    }

    /// M\[`slot`\] = A.
    pub(crate) fn store(&mut self, slot: u32) {
        self.plain(libc::BPF_ST, slot);
    }

    /// M\[`slot`\] = X.
    pub(crate) fn store_x(&mut self, slot: u32) {
        self.plain(libc::BPF_STX, slot);
    }

    /// A = A op operand.
    pub(crate) fn arithmetic(&mut self, op: Arithmetic, operand: Operand) {
        let (source, k) = match operand {
            Operand::Constant(k) => (libc::BPF_K, k),
            Operand::X => (libc::BPF_X, 0),
        };
        self.plain(libc::BPF_ALU | op.code() | source, k);
    }

    /// X = A.
    pub(crate) fn a_to_x(&mut self) {
        self.plain(libc::BPF_MISC | libc::BPF_TAX, 0);
    }

    /// A = X.
    pub(crate) fn x_to_a(&mut self) {
        self.plain(libc::BPF_MISC | libc::BPF_TXA, 0);
    }

    /// Ends: keeps `k` bytes of the packet, or drops it if `k` is 0.
    pub(crate) fn return_constant(&mut self, k: u32) {
        self.plain(libc::BPF_RET | libc::BPF_K, k);
    }

    /// Ends: keeps A bytes of the packet, or drops it if A is 0.
    pub(crate) fn return_a(&mut self) {
        self.plain(libc::BPF_RET | libc::BPF_A, 0);
    }

    /// Continues at `label`.
    pub(crate) fn jump(&mut self, label: JumpLabel) {
        self.items.push(Item::Jump(label));
    }

    /// Continues at `yes` if the condition holds, else with the next instruction.
    pub(crate) fn when(&mut self, condition: Condition, k: u32, yes: JumpLabel) {
        self.items.push(Item::Branch { condition, k, yes: Some(yes), no: None });
    }

    /// Continues at `no` unless the condition holds.
    pub(crate) fn unless(&mut self, condition: Condition, k: u32, no: JumpLabel) {
        self.items.push(Item::Branch { condition, k, yes: None, no: Some(no) });
    }

    /// The program. Its jumps are found by widening: all conditional jumps begin as short ones, those that do not
    /// reach become long, which moves others apart, until nothing changes.
    pub(crate) fn finish(self) -> Result<Vec<Instruction>, AssembleError> {
        let Self { items, labels } = self;
        let mut long = vec![[false; 2]; items.len()];
        loop {
            let mut starts = Vec::with_capacity(items.len() + 1);
            let mut length = 0;
            for arms in &long {
                starts.push(length);
                length += 1 + arms.iter().filter(|arm| **arm).count();
            }
            starts.push(length);
            if length > MAX_INSTRUCTIONS {
                return Err(AssembleError::TooLong(length));
            }
            // From the instruction after the one at `from` to the label.
            let distance = |from: usize, label: JumpLabel| {
                let target = labels[label.0].and_then(|item| starts.get(item)).filter(|_| length > 0);
                target.and_then(|target| target.checked_sub(from + 1)).ok_or(AssembleError::Label(label))
            };

            let mut widened = false;
            for (index, item) in items.iter().enumerate() {
                let Item::Branch { yes, no, .. } = item else { continue };
                for (arm, label) in [yes, no].into_iter().enumerate() {
                    let Some(label) = label else { continue };
                    if !long[index][arm] && distance(starts[index], *label)? > usize::from(u8::MAX) {
                        long[index][arm] = true;
                        widened = true;
                    }
                }
            }
            if widened {
                continue;
            }

            let jump = |distance: usize| Instruction {
                code: (libc::BPF_JMP | libc::BPF_JA) as u16,
                jt: 0,
                jf: 0,
                k: distance as u32,
            };
            let mut program = Vec::with_capacity(length);
            for (index, item) in items.iter().enumerate() {
                let at = starts[index];
                match *item {
                    Item::Plain(instruction) => program.push(instruction),
                    Item::Jump(label) => program.push(jump(distance(at, label)?)),
                    Item::Branch { condition, k, yes, no } => {
                        let mut detours = Vec::new();
                        let mut offsets = [0u8; 2];
                        let detour_count = long[index].iter().filter(|arm| **arm).count();
                        for (arm, label) in [yes, no].into_iter().enumerate() {
                            offsets[arm] = match label {
                                None => detour_count as u8,
                                Some(label) if long[index][arm] => {
                                    detours.push(jump(distance(at + 1 + detours.len(), label)?));
                                    (detours.len() - 1) as u8
                                }
                                Some(label) => distance(at, label)? as u8,
                            };
                        }
                        program.push(Instruction {
                            code: (libc::BPF_JMP | condition.code() | libc::BPF_K) as u16,
                            jt: offsets[0],
                            jf: offsets[1],
                            k,
                        });
                        program.append(&mut detours);
                    }
                }
            }
            return Ok(program);
        }
    }
}

impl Condition {
    const fn code(self) -> u32 {
        match self {
            Self::Equal => libc::BPF_JEQ,
            Self::Greater => libc::BPF_JGT,
            Self::GreaterOrEqual => libc::BPF_JGE,
            Self::AnyBit => libc::BPF_JSET,
        }
    }
}

impl Width {
    const fn code(self) -> u32 {
        match self {
            Self::Byte => libc::BPF_B,
            Self::Half => libc::BPF_H,
            Self::Word => libc::BPF_W,
        }
    }
}

impl Arithmetic {
    const fn code(self) -> u32 {
        match self {
            Self::Add => libc::BPF_ADD,
            Self::Multiply => libc::BPF_MUL,
            Self::And => libc::BPF_AND,
            Self::Xor => libc::BPF_XOR,
            Self::ShiftLeft => libc::BPF_LSH,
            Self::ShiftRight => libc::BPF_RSH,
            Self::Remainder => libc::BPF_MOD,
        }
    }
}

/// An interpreter, to try programs without a kernel and beside programs of other compilers.
#[cfg(test)]
pub(crate) mod machine {
    use super::Instruction;

    /// A packet as the kernel shows it to a filter.
    #[derive(Clone, Default)]
    pub(crate) struct FilterPacket {
        pub(crate) bytes: Vec<u8>,
        /// Where the network header begins.
        pub(crate) network: usize,
        pub(crate) protocol: u16,
        pub(crate) packet_type: u32,
        pub(crate) interface: u32,
        pub(crate) hardware: u16,
        /// The tag that the kernel removed.
        pub(crate) tag: Option<u16>,
    }

    /// The result of the program; 0 where the kernel would give up. Panics on a program that the kernel would not
    /// load.
    pub(crate) fn run(program: &[Instruction], seen: &FilterPacket) -> u32 {
        let load = |width: u32, offset: u32| -> Option<u32> {
            let signed = offset as i32;
            if (libc::SKF_AD_OFF..0).contains(&signed) {
                return Some(match signed - libc::SKF_AD_OFF {
                    libc::SKF_AD_PROTOCOL => u32::from(seen.protocol),
                    libc::SKF_AD_PKTTYPE => seen.packet_type,
                    libc::SKF_AD_IFINDEX => seen.interface,
                    libc::SKF_AD_HATYPE => u32::from(seen.hardware),
                    libc::SKF_AD_VLAN_TAG => u32::from(seen.tag.unwrap_or(0)),
                    libc::SKF_AD_VLAN_TAG_PRESENT => u32::from(seen.tag.is_some()),
                    other => panic!("ancillary {other}"),
                });
            }
            let start = if signed >= 0 {
                signed as usize
            } else {
                assert!(signed >= libc::SKF_NET_OFF, "offset {signed}");
                seen.network + (signed - libc::SKF_NET_OFF) as usize
            };
            let size = match width {
                libc::BPF_B => 1,
                libc::BPF_H => 2,
                _ => 4,
            };
            let bytes = seen.bytes.get(start..start + size)?;
            Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        };
        let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [None::<u32>; 16], 0usize);
        loop {
            let i = program[at];
            at += 1;
            let code = u32::from(i.code);
            let operand = if code & libc::BPF_X == 0 { i.k } else { x };
            match code & 7 {
                libc::BPF_LD | libc::BPF_LDX => {
                    let (width, mode) = (code & 0x18, code & 0xe0);
                    let value = match mode {
                        libc::BPF_ABS => load(width, i.k),
                        libc::BPF_IND => load(width, x.wrapping_add(i.k)),
                        libc::BPF_IMM => Some(i.k),
                        libc::BPF_MEM => Some(memory[i.k as usize].expect("memory read before written")),
                        libc::BPF_LEN => Some(seen.bytes.len() as u32),
                        libc::BPF_MSH => load(libc::BPF_B, i.k).map(|byte| (byte & 15) * 4),
                        other => panic!("mode {other}"),
                    };
                    let Some(value) = value else { return 0 };
                    if code & 7 == libc::BPF_LD { a = value } else { x = value }
                }
                libc::BPF_ST => memory[i.k as usize] = Some(a),
                libc::BPF_STX => memory[i.k as usize] = Some(x),
                libc::BPF_ALU => {
                    a = match code & 0xf0 {
                        libc::BPF_ADD => a.wrapping_add(operand),
                        libc::BPF_SUB => a.wrapping_sub(operand),
                        libc::BPF_MUL => a.wrapping_mul(operand),
                        libc::BPF_AND => a & operand,
                        libc::BPF_OR => a | operand,
                        libc::BPF_XOR => a ^ operand,
                        libc::BPF_LSH => a << operand,
                        libc::BPF_RSH => a >> operand,
                        libc::BPF_MOD => a % operand,
                        other => panic!("operation {other}"),
                    }
                }
                libc::BPF_JMP => {
                    let holds = match code & 0xf0 {
                        libc::BPF_JA => {
                            at += i.k as usize;
                            continue;
                        }
                        libc::BPF_JEQ => a == operand,
                        libc::BPF_JGT => a > operand,
                        libc::BPF_JGE => a >= operand,
                        libc::BPF_JSET => a & operand != 0,
                        other => panic!("condition {other}"),
                    };
                    at += usize::from(if holds { i.jt } else { i.jf });
                }
                libc::BPF_RET => return if code & 0x18 == libc::BPF_A { a } else { i.k },
                libc::BPF_MISC => {
                    if code & 0xf8 == libc::BPF_TAX {
                        x = a
                    } else {
                        a = x
                    }
                }
                _ => unreachable!(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::machine::{FilterPacket, run};
    use super::*;

    /// Is the first byte `probe`? With `filler` instructions between the test and its targets.
    fn far(filler: usize, both: bool) -> Vec<Instruction> {
        let mut asm = BpfAssembler::default();
        let (yes, no) = (asm.label(), asm.label());
        asm.load(Width::Byte, 0);
        asm.when(Condition::Equal, 7, yes);
        if both {
            asm.unless(Condition::Equal, 9, no);
        } else {
            asm.when(Condition::Greater, 8, yes);
        }
        for _ in 0..filler {
            asm.load_constant(1);
        }
        asm.return_constant(1);
        asm.place(yes);
        asm.return_constant(2);
        asm.place(no);
        asm.return_constant(3);
        asm.finish().unwrap()
    }

    #[test]
    fn jumps_reach_any_distance() {
        for filler in [0, 1, 250, 251, 252, 253, 254, 255, 256, 300, 4000] {
            for (byte, one_way, two_way) in [(7, 2, 2), (8, 1, 3), (9, 2, 1), (200, 2, 3)] {
                let seen = FilterPacket { bytes: vec![byte], ..FilterPacket::default() };
                assert_eq!(run(&far(filler, false), &seen), one_way, "{filler} {byte}");
                assert_eq!(run(&far(filler, true), &seen), two_way, "{filler} {byte}");
            }
        }
    }

    #[test]
    fn short_jumps_cost_nothing() {
        assert_eq!(far(0, true).len(), 6);
        assert_eq!(far(251, false).len(), 257);
        // The first jump no longer reaches over 256 instructions; the second does.
        assert_eq!(far(254, false).len(), 261);
    }

    #[test]
    fn impossible_programs_are_refused() {
        let mut asm = BpfAssembler::default();
        let label = asm.label();
        asm.jump(label);
        assert_eq!(asm.finish().unwrap_err(), AssembleError::Label(label));

        let mut asm = BpfAssembler::default();
        let label = asm.label();
        asm.place(label);
        asm.load_constant(0);
        asm.jump(label);
        assert_eq!(asm.finish().unwrap_err(), AssembleError::Label(label));

        let mut asm = BpfAssembler::default();
        (0..=MAX_INSTRUCTIONS).for_each(|_| asm.return_constant(0));
        assert_eq!(asm.finish().unwrap_err(), AssembleError::TooLong(4097));
    }
}
