//! Names of the system calls in which a server's threads wait.

/// Number on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), number on aarch64 (include/uapi/asm-generic/unistd.h)
/// and name; `NONE` where an architecture lacks the call.
const CALLS: [(u32, u32, &str); 68] = [
    (0, 63, "read"),
    (1, 64, "write"),
    (3, 57, "close"),
    (7, NONE, "poll"),
    (8, 62, "lseek"),
    (9, 222, "mmap"),
    (10, 226, "mprotect"),
    (11, 215, "munmap"),
    (12, 214, "brk"),
    (16, 29, "ioctl"),
    (17, 67, "pread64"),
    (18, 68, "pwrite64"),
    (19, 65, "readv"),
    (20, 66, "writev"),
    (23, NONE, "select"),
    (24, 124, "sched_yield"),
    (26, 227, "msync"),
    (28, 233, "madvise"),
    (34, NONE, "pause"),
    (35, 101, "nanosleep"),
    (42, 203, "connect"),
    (43, 202, "accept"),
    (44, 206, "sendto"),
    (45, 207, "recvfrom"),
    (46, 211, "sendmsg"),
    (47, 212, "recvmsg"),
    (56, 220, "clone"),
    (61, 260, "wait4"),
    (72, 25, "fcntl"),
    (74, 82, "fsync"),
    (75, 83, "fdatasync"),
    (76, 45, "truncate"),
    (77, 46, "ftruncate"),
    (78, NONE, "getdents"),
    (82, NONE, "rename"),
    (87, NONE, "unlink"),
    (128, 137, "rt_sigtimedwait"),
    (130, 133, "rt_sigsuspend"),
    (162, 81, "sync"),
    (202, 98, "futex"),
    (217, 61, "getdents64"),
    (219, 128, "restart_syscall"),
    (221, 223, "fadvise64"),
    (228, 113, "clock_gettime"),
    (230, 115, "clock_nanosleep"),
    (232, NONE, "epoll_wait"),
    (247, 95, "waitid"),
    (257, 56, "openat"),
    (262, 79, "newfstatat"),
    (263, 35, "unlinkat"),
    (270, 72, "pselect6"),
    (271, 73, "ppoll"),
    (277, 84, "sync_file_range"),
    (281, 22, "epoll_pwait"),
    (285, 47, "fallocate"),
    (288, 242, "accept4"),
    (295, 69, "preadv"),
    (296, 70, "pwritev"),
    (299, 243, "recvmmsg"),
    (307, 269, "sendmmsg"),
    (316, 276, "renameat2"),
    (318, 278, "getrandom"),
    (323, 282, "userfaultfd"),
    (327, 286, "preadv2"),
    (328, 287, "pwritev2"),
    (426, 426, "io_uring_enter"),
    (435, 435, "clone3"),
    (441, 441, "epoll_pwait2"),
];
const NONE: u32 = u32::MAX;

/// The name of a system call of this architecture; `None` for one that is not in the list.
pub fn call_name(number: u32) -> Option<&'static str> {
    let number_here =
        |call: &(u32, u32, &'static str)| if cfg!(target_arch = "x86_64") { call.0 } else { call.1 };
    CALLS.iter().find(|call| number_here(call) == number).map(|call| call.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_headers_of_this_machine() {
        let header = ["x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h"]
            .iter()
            .find_map(|name| std::fs::read_to_string(format!("/usr/include/{name}")).ok());
        let Some(header) = header else {
            println!("skipped: no headers of the kernel here");
            return;
        };
        let mut found = 0;
        for line in header.lines() {
            let mut words = line.split_whitespace();
            let (Some("#define"), Some(name), Some(number)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Some(name) = name.strip_prefix("__NR_") else { continue };
            let Ok(number) = number.parse() else { continue };
            if let Some(known) = CALLS.iter().find(|call| call.2 == name) {
                assert_eq!(call_name(number), Some(known.2));
                found += 1;
            }
        }
        assert!(found >= 50, "{found}");
        assert_eq!(call_name(NONE - 1), None);
    }
}
