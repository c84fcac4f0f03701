//! The option of commands that drop their privileges.

use clap::Args;

/// Whether privileges are dropped.
#[derive(Args, Debug, Default, Clone)]
#[group(skip)]
pub struct PrivilegeArgs {
    /// Keep the privileges that the program was started with, for debugging
    #[arg(long)]
    pub keep_privileges: bool,
}

impl PrivilegeArgs {
    /// Whether those are dropped that are not needed any more.
    pub const fn are_dropped(&self) -> bool {
        !self.keep_privileges
    }
}
