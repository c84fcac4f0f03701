//! What needs the kernel's numbers of processes, in a process namespace of its own.

use std::process::{Command, Output};

use crate::support::text;

/// Runs the program in a process namespace of its own, in which it is the first process; `None` where there can be none.
fn apart(words: &[&str]) -> Option<Output> {
    let within = |program: &str, words: &[&str]| {
        let namespace = ["--fork", "--pid", "--mount-proc", program];
        Command::new("unshare").args(namespace).args(words).output()
    };
    if !within("true", &[]).is_ok_and(|output| output.status.success()) {
        println!("skipped: no process namespace can be made; run as root, with `unshare` installed");
        return None;
    }
    Some(within(env!("CARGO_BIN_EXE_mongosonar"), words).unwrap())
}

#[test]
fn what_uses_the_kernels_numbers_of_processes_says_that_it_has_others() {
    // Itself, which runs as long as it does.
    for words in [
        &["stacks", "--pid", "1"][..],
        &["io", "live", "--pid", "1", "--duration", "1s"],
        // Nobody can make a file there.
        &["io", "record", "--pid", "1", "/proc/none/x.msio"],
        &["why", "--pid", "1", "--port", "27017", "--duration", "1s"],
        &["queries", "--split", "--pid", "1", "--port", "27017", "--duration", "1s"],
        &["queries", "--source", "process", "--port", "27017", "--duration", "1s"],
    ] {
        let Some(output) = apart(words) else { return };
        let said = text(&output.stderr);
        assert!(said.contains("a process namespace of its own"), "{words:?}: {said}");
        assert!(said.contains("hostPID: true") && !said.contains("has ended"), "{words:?}: {said}");
    }
}

#[test]
fn the_doctor_in_a_process_namespace_of_its_own_names_it() {
    let Some(output) = apart(&["doctor", "--json"]) else { return };
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let line = found["checks"].as_array().unwrap().iter().find(|line| line["name"] == "ebpf").unwrap();
    assert_eq!(line["verdict"], "warning", "{line}");
    assert!(line["found"].as_str().unwrap().contains("a process namespace of its own"), "{line}");
    assert!(line["remedy"].as_str().unwrap().contains("hostPID: true"), "{line}");
}
