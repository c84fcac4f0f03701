//! Compares the settings of a machine with MongoDB's production notes: facts in, findings out.
//!
//! Each rule is a function of the facts. An unknown fact gives no finding; it is listed as not visible. A rule
//! gives advice only if the machine offers a choice. No remedy destroys data: if another file system or array is
//! needed, the remedy describes the migration.

mod containers;
mod facts;
mod limits;
mod memory;
mod storage;

pub use self::facts::{
    CGROUP, CheckFinding, Disk, DiskArray, EXT4, FileSystem, Grade, HUGE_PAGES, MD, MachineFacts, NOTES, OWN,
    ProcessBounds, RSEQ_BREAK, SERVER_60412, TCMALLOC, ULIMIT, Version, WIREDTIGER, WT_FILES, XFS,
};
use self::facts::{Rule, numbers};
pub use self::storage::without_device;

/// All findings, in the order in which a person would check them.
pub fn findings(facts: &MachineFacts) -> Vec<CheckFinding> {
    let mut all = Vec::new();
    all.extend(kernel(facts));
    if let Some(fs) = &facts.file_system {
        all.push(storage::file_system(fs));
        all.extend(storage::network(fs));
        all.extend(storage::atime(fs));
        all.extend(storage::space(fs));
    }
    all.extend(facts.arrays.iter().flat_map(storage::array));
    all.extend(storage::stripe(facts));
    all.extend(storage::readahead(facts));
    all.extend(facts.disks.iter().filter_map(storage::scheduler));
    all.extend(facts.disks.iter().filter_map(storage::rotational));
    all.extend(containers::bounds(facts));
    all.extend(memory::huge_pages(facts));
    all.extend(memory::huge_pages_details(facts));
    all.extend(memory::rseq(facts));
    all.extend(memory::overcommit(facts));
    all.extend(memory::swappiness(facts));
    all.extend(memory::numa(facts));
    all.extend(limits::limits(facts));
    all.extend(limits::map_count(facts));
    all
}

fn kernel(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str = "MongoDB requires Linux 2.6.36 or newer";
    let release = facts.kernel.as_ref()?;
    let old = numbers(release).is_some_and(|version| version < (2, 6, 36));
    let grade = if old { Grade::Problem } else { Grade::Ok };
    Some(Rule("kernel", WHY, NOTES).finds(grade, format!("Linux {release}")))
}

#[cfg(test)]
mod tests;
