//! Turns samples of threads into stacks of functions: unwinding, symbols, names, and the class of a wait.
//!
//! [`Image`] reads symbols and unwind information of a program or library, [`AddressSpace`] has the images of a process
//! and unwinds samples, [`FunctionName`] makes names short, and [`WaitClasses`] decides what a thread waits for.

mod address_space;
mod classes;
mod function_name;
mod image;
mod maps;
mod shared;
mod syscalls;

pub use address_space::{AddressSpace, NamedFrame, StackEnd, UnwoundStack};
pub use classes::{ClassFileError, StackView, WaitClass, WaitClasses};
pub use function_name::FunctionName;
pub use image::{Image, ImageError, MAX_BUILD_ID};
pub use maps::{Mapping, executable};
pub use shared::{SharedImage, TableBudget};
pub use syscalls::call_name;
