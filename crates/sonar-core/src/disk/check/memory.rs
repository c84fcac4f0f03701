//! The rules about memory: huge pages, the allocator, swapping, NUMA.

use super::facts::{
    CheckFinding, Grade, HUGE_PAGES, MachineFacts, NOTES, RSEQ_BREAK, Rule, TCMALLOC, Version, numbers,
};

/// Whether mongod has the memory allocator with caches for each processor: from 8.0 on, on x86-64 and ARM64. `None` if
/// the version is unknown.
fn has_new_allocator(facts: &MachineFacts) -> Option<bool> {
    let release = facts.kernel.as_deref().unwrap_or_default();
    // The releases of distributions for these processors end so; mongod keeps the allocator of 7.0 there.
    let is_legacy = ["ppc64le", "powerpc64le", "s390x"].iter().any(|name| release.ends_with(name));
    facts.version.map(|(major, _)| major >= 8 && !is_legacy)
}

pub(super) fn huge_pages(facts: &MachineFacts) -> Option<CheckFinding> {
    let set = facts.huge_pages.as_ref()?;
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let fix = |to: &str| format!("echo {to} | sudo tee {path}   (and at boot)");
    let source = facts.version_source.as_ref().map_or_else(String::new, |source| format!(" (from {source})"));
    let opted_out = facts.process_huge_pages == Some(false);
    let Some((version, is_new)) = facts.version.zip(has_new_allocator(facts)) else {
        let why = "from mongod 8.0 on it should be always, up to 7.0 never";
        let found = format!("{set}; the version of mongod is unknown");
        return Some(
            Rule("huge-pages", why, TCMALLOC)
                .finds(Grade::Warning, found)
                .remedy("mongosonar disk check --mongod-version X.Y"),
        );
    };
    let found = |what: &str| format!("{what}, for mongod {}.{}{source}", version.0, version.1);
    Some(if is_new {
        let why = "from 8.0 on, the memory allocator of mongod works per CPU and benefits from huge pages";
        let rule = Rule("huge-pages", why, TCMALLOC);
        match set.as_str() {
            "always" if opted_out => rule
                .finds(Grade::Warning, found("always, but this process has opted out (PR_SET_THP_DISABLE)"))
                .remedy("start mongod without the wrapper that disables huge pages for it"),
            "always" => rule.finds(Grade::Ok, found(set)),
            _ => rule.finds(Grade::Warning, found(set)).remedy(fix("always")),
        }
    } else {
        let why = "without the allocator of 8.0, huge pages make mongod use more memory and wait while the kernel \
                   assembles them";
        let rule = Rule("huge-pages", why, HUGE_PAGES);
        match set.as_str() {
            "never" => rule.finds(Grade::Ok, found(set)),
            _ if opted_out => rule.finds(
                Grade::Ok,
                found(&format!("{set}, but this process has opted out (PR_SET_THP_DISABLE)")),
            ),
            "madvise" => rule.finds(Grade::Warning, found(set)).remedy(fix("never")),
            _ => rule.finds(Grade::Problem, found(set)).remedy(fix("never")),
        }
    })
}

pub(super) fn huge_pages_details(facts: &MachineFacts) -> Vec<CheckFinding> {
    if has_new_allocator(facts) != Some(true) {
        return Vec::new();
    }
    let mut all = Vec::new();
    if let Some(defrag) = &facts.huge_pages_defrag {
        let why = "mongod should not wait while the kernel assembles huge pages";
        let good = defrag == "defer+madvise";
        let made = Rule("huge-pages-defrag", why, TCMALLOC)
            .finds(if good { Grade::Ok } else { Grade::Warning }, defrag.clone());
        all.push(if good {
            made
        } else {
            made.remedy("echo defer+madvise | sudo tee /sys/kernel/mm/transparent_hugepage/defrag")
        });
    }
    if let Some(count) = facts.max_ptes_none {
        let why = "above 0, the kernel fills huge pages with memory that was not requested";
        let made = Rule("huge-pages-max-ptes-none", why, TCMALLOC)
            .finds(if count == 0 { Grade::Ok } else { Grade::Warning }, count.to_string());
        all.push(if count == 0 {
            made
        } else {
            made.remedy("echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none")
        });
    }
    all
}

/// Kernels on which the allocator must not use restartable sequences: from the first to the last of these.
const BROKEN_RSEQ: [(u32, u32, u32); 2] = [(6, 19, 0), (7, 0, 13)];
/// The first kernel with what caches for each processor need.
const FIRST_RSEQ: (u32, u32, u32) = (4, 18, 0);
/// The first glibc that uses restartable sequences itself.
const FIRST_GLIBC_RSEQ: Version = (2, 35);
const RSEQ: &str = "glibc.pthread.rseq";

/// The caches of the allocator for each processor need restartable sequences, which glibc takes first if it is not
/// told otherwise (`logLinuxMongodWarnings` in src/mongo/db/startup_warnings_mongod.cpp).
pub(super) fn rseq(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str = "the allocator of 8.0 needs restartable sequences for its caches per CPU; if glibc registers them \
                       first, it has caches per thread only, which costs much with many connections";
    let tunables = facts.glibc_tunables.as_ref().filter(|_| has_new_allocator(facts) == Some(true))?;
    let set = tunables.as_deref().unwrap_or_default().split(':').rev().find_map(|one| {
        let value = one.strip_prefix(RSEQ)?.strip_prefix('=')?;
        Some(value.to_owned())
    });
    let found = match &set {
        Some(value) => format!("GLIBC_TUNABLES of mongod: {RSEQ}={value}"),
        None => format!("GLIBC_TUNABLES of mongod: {RSEQ} is not set"),
    };
    let is_off = set.as_deref() == Some("0");
    let kernel = facts.kernel.as_deref().and_then(numbers);
    let has_broken = kernel.is_some_and(|kernel| (BROKEN_RSEQ[0]..=BROKEN_RSEQ[1]).contains(&kernel));
    let needs_none = facts.glibc.is_some_and(|version| version < FIRST_GLIBC_RSEQ);
    Some(match (has_broken, is_off) {
        (true, true) => {
            let why = "with kernels from 6.19 to 7.0.13 the allocator of mongod 8 uses restartable sequences in a way \
                       that the kernel forbids: mongod refuses to start, or crashes";
            Rule("rseq", why, RSEQ_BREAK).finds(Grade::Problem, found).remedy(format!(
                "use a kernel before 6.19, from 7.0.14 on, or one of a distribution that has the correction; until then \
                 {RSEQ}=1, with which the allocator has caches per thread"
            ))
        }
        (true, false) => Rule("rseq", WHY, RSEQ_BREAK)
            .finds(Grade::Ok, format!("{found}, which is right with this kernel: it has caches per thread")),
        _ if kernel.is_some_and(|kernel| kernel < FIRST_RSEQ) => Rule("rseq", WHY, TCMALLOC)
            .finds(Grade::Warning, "caches per CPU need Linux 4.18 or newer")
            .remedy("update the kernel"),
        (false, true) => Rule("rseq", WHY, TCMALLOC).finds(Grade::Ok, found),
        _ if needs_none => {
            let (major, minor) = facts.glibc.unwrap_or_default();
            let found = format!("glibc {major}.{minor} does not use restartable sequences");
            Rule("rseq", WHY, TCMALLOC).finds(Grade::Ok, found)
        }
        _ => Rule("rseq", WHY, TCMALLOC).finds(Grade::Warning, found).remedy(format!(
            "sudo systemctl edit mongod   ([Service] Environment=GLIBC_TUNABLES={RSEQ}=0; in a container as a variable \
             of its environment), then restart it"
        )),
    })
}

pub(super) fn overcommit(facts: &MachineFacts) -> Option<CheckFinding> {
    let mode = facts.overcommit?;
    let found = format!("vm.overcommit_memory is {mode}");
    let fix = "sudo sysctl vm.overcommit_memory=1   (and in /etc/sysctl.d)";
    if mode == 2 {
        let why =
            "the kernel refuses memory that would be there: journaling and allocation of mongod may fail";
        return Some(Rule("overcommit", why, NOTES).finds(Grade::Warning, found).remedy(fix));
    }
    let is_new = has_new_allocator(facts)?;
    let why = if is_new {
        "the allocator of 8.0 reserves much more memory than it uses, which the kernel should not estimate"
    } else {
        "with 2 the kernel would refuse memory that is there"
    };
    let made =
        |grade| Rule("overcommit", why, if is_new { TCMALLOC } else { NOTES }).finds(grade, found.clone());
    Some(if is_new && mode != 1 { made(Grade::Warning).remedy(fix) } else { made(Grade::Ok) })
}

pub(super) fn swappiness(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str = "mongod's cache, once swapped out, is read back one page at a time";
    let value = facts.swappiness?;
    Some(match (value, facts.swap_kib) {
        (0 | 1, _) => Rule("swappiness", WHY, NOTES).finds(Grade::Ok, value.to_string()),
        (_, Some(0)) => {
            Rule("swappiness", WHY, NOTES).finds(Grade::Ok, format!("{value}, and there is no swap"))
        }
        _ => Rule("swappiness", WHY, NOTES)
            .finds(Grade::Warning, value.to_string())
            .remedy("sudo sysctl vm.swappiness=1   (and in /etc/sysctl.d)"),
    })
}

pub(super) fn numa(facts: &MachineFacts) -> Vec<CheckFinding> {
    const WHY: &str = "memory from only one node makes that node swap while others have free memory";
    let Some(nodes) = facts.numa_nodes.filter(|nodes| *nodes > 0) else { return Vec::new() };
    if nodes == 1 {
        return vec![Rule("numa", WHY, NOTES).finds(Grade::Ok, "one node")];
    }
    let mut all = Vec::new();
    if let Some(interleaved) = facts.interleaved {
        all.push(if interleaved {
            Rule("numa", WHY, NOTES)
                .finds(Grade::Ok, format!("{nodes} nodes, mongod's memory is interleaved"))
        } else {
            Rule("numa", WHY, NOTES)
                .finds(Grade::Warning, format!("{nodes} nodes, mongod's memory is not interleaved"))
                .remedy("numactl --interleave=all mongod … (in its unit: ExecStart)")
        });
    } else if facts.has_mongod {
        all.push(
            Rule("numa", WHY, NOTES)
                .finds(
                    Grade::Warning,
                    format!("{nodes} nodes; whether mongod's memory is interleaved is unknown"),
                )
                .remedy("start mongod with numactl --interleave=all"),
        );
    }
    if let Some(mode) = facts.zone_reclaim {
        let why = "the kernel drops cached pages on one node while others have free memory";
        let grade = if mode == 0 { Grade::Ok } else { Grade::Warning };
        let made = Rule("zone-reclaim", why, NOTES).finds(grade, format!("vm.zone_reclaim_mode is {mode}"));
        all.push(if mode == 0 { made } else { made.remedy("sudo sysctl vm.zone_reclaim_mode=0") });
    }
    all
}
