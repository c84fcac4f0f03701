//! The state machine that divides the time of a thread (`bpf/split.h`), outside the kernel: on cases made by hand, and on
//! what the threads of a real MongoDB did.

mod machine;
mod recording;
mod rules;
